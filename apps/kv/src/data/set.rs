//! Sets: whole numbers in order, a few packed members, or a directory.

use super::chance::KeyHasher;
use super::directory::{Directory, Keyed};
use super::memory::{Pieces, allocated};
use super::numbers::{self, IntegerText};
use super::packed::Packed;
use laneway_random::Random;

/// More numbers than this are members like others (Redis's set-max-intset-entries).
const INTEGERS_MAX: usize = 512;
/// More members than this, or longer ones, are kept in a directory.
const PACKED_MEMBERS_MAX: usize = 32;
const PACKED_BYTES_MAX: usize = 64;
/// A bucket of a directory and what stands around it, per member.
pub(crate) const MEMBER_BYTES: usize = 27;

#[derive(Clone, Debug)]
pub(crate) struct Set {
    members: Members,
    hasher: KeyHasher,
}

#[derive(Clone, Debug)]
enum Members {
    /// In ascending order.
    Integers(Vec<i64>),
    Packed(Packed),
    Directory {
        members: Box<Directory<Member>>,
        bytes: usize,
    },
}

#[derive(Clone, Debug)]
struct Member(Box<[u8]>);

impl Keyed for Member {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

impl Set {
    pub(crate) fn new(hasher: &KeyHasher) -> Set {
        Set { members: Members::Integers(Vec::new()), hasher: hasher.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.members {
            Members::Integers(integers) => integers.len(),
            Members::Packed(packed) => packed.len(),
            Members::Directory { members, .. } => members.len(),
        }
    }

    pub(crate) fn encoding(&self) -> &'static str {
        match &self.members {
            Members::Integers(_) => "intset",
            _ => "hashtable",
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match &self.members {
            Members::Integers(integers) => allocated(integers.capacity() * size_of::<i64>()),
            Members::Packed(packed) => allocated(packed.size()),
            Members::Directory { bytes, .. } => *bytes,
        }
    }

    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        match &self.members {
            Members::Integers(integers) => numbers::integer(member)
                .is_some_and(|integer| integers.binary_search(&integer).is_ok()),
            Members::Packed(packed) => packed.iter().any(|other| other == member),
            Members::Directory { members, .. } => {
                members.find(members.hash(member), member).is_some()
            }
        }
    }

    /// Adds a member; true if it was not there.
    pub(crate) fn insert(&mut self, member: &[u8]) -> bool {
        match &mut self.members {
            Members::Integers(integers) => {
                if let Some(integer) = numbers::integer(member) {
                    let Err(at) = integers.binary_search(&integer) else { return false };
                    integers.insert(at, integer);
                    if integers.len() > INTEGERS_MAX {
                        self.use_directory();
                    }
                    return true;
                }
                if integers.len() < PACKED_MEMBERS_MAX && member.len() <= PACKED_BYTES_MAX {
                    let mut packed = Packed::default();
                    for integer in &*integers {
                        packed.push([IntegerText::new(*integer).bytes()]);
                    }
                    self.members = Members::Packed(packed);
                } else {
                    self.use_directory();
                }
                self.insert(member)
            }
            Members::Packed(packed) => {
                if packed.iter().any(|other| other == member) {
                    return false;
                }
                if packed.len() < PACKED_MEMBERS_MAX && member.len() <= PACKED_BYTES_MAX {
                    packed.push([member]);
                    return true;
                }
                self.use_directory();
                self.insert(member)
            }
            Members::Directory { members, bytes } => {
                let hash = members.hash(member);
                if members.find(hash, member).is_some() {
                    return false;
                }
                members.insert(hash, Member(member.into()));
                *bytes += allocated(member.len()) + MEMBER_BYTES;
                true
            }
        }
    }

    /// Removes a member; true if it was there.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.members {
            Members::Integers(integers) => {
                let at = numbers::integer(member)
                    .and_then(|integer| integers.binary_search(&integer).ok());
                at.map(|at| integers.remove(at)).is_some()
            }
            Members::Packed(packed) => {
                let at = packed.iter().position(|other| other == member);
                at.map(|at| packed.remove(at, 1)).is_some()
            }
            Members::Directory { members, bytes } => {
                let removed = members.remove(members.hash(member), member).is_some();
                if removed {
                    *bytes -= allocated(member.len()) + MEMBER_BYTES;
                }
                removed
            }
        }
    }

    /// Shows members until `show` says no more.
    pub(crate) fn each(&self, mut show: impl FnMut(&[u8]) -> bool) {
        match &self.members {
            Members::Integers(integers) => {
                let _ = integers.iter().all(|integer| show(IntegerText::new(*integer).bytes()));
            }
            Members::Packed(packed) => {
                let _ = packed.iter().all(show);
            }
            Members::Directory { members, .. } => {
                let _ = members.iter().all(|member| show(&member.0));
            }
        }
    }

    /// All members.
    pub(crate) fn members(&self) -> Vec<Box<[u8]>> {
        let mut members = Vec::with_capacity(self.len());
        self.each(|member| {
            members.push(member.into());
            true
        });
        members
    }

    /// Shows members from a cursor on, at least `count` of a large set; the next cursor.
    pub(crate) fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(&[u8])) -> u64 {
        match &self.members {
            Members::Directory { members, .. } => {
                members.scan(cursor, count, |member| show(&member.0))
            }
            _ => {
                self.each(|member| {
                    show(member);
                    true
                });
                0
            }
        }
    }

    /// A member by chance.
    pub(crate) fn random(&self, chance: &mut Random) -> Option<Box<[u8]>> {
        let at = chance.index(self.len());
        match &self.members {
            Members::Integers(integers) => {
                integers.get(at).map(|integer| IntegerText::new(*integer).bytes().into())
            }
            Members::Packed(packed) => packed.get(at).map(Box::from),
            Members::Directory { members, .. } => {
                members.random(chance).map(|member| member.0.clone())
            }
        }
    }

    /// Keeps an empty set's members as members from now on, though they may be numbers.
    pub(crate) fn use_members(&mut self) {
        self.members = Members::Packed(Packed::default());
    }

    fn use_directory(&mut self) {
        let mut members = Box::new(Directory::new(self.hasher.clone()));
        let mut bytes = 0;
        self.each(|member| {
            members.insert(members.hash(member), Member(member.into()));
            bytes += allocated(member.len()) + MEMBER_BYTES;
            true
        });
        self.members = Members::Directory { members, bytes };
    }
}

impl Pieces for Set {
    fn free_piece(&mut self) -> bool {
        match &mut self.members {
            Members::Directory { members, .. } => members.free_piece(),
            _ => false,
        }
    }
}
