//! The ports of a lane whose ports come and go: numbers that are never used again, in places that are.
//!
//! ```text
//!   PortId:  │ how often the place was used before │ the place, below PortId::OPEN_MAX │
//! ```
//!
//! So a port is found by an index and a comparison, and those that a lane was opened with are numbered
//! from 0. What must always hold: a number that was given is not given again; a place whose numbers are
//! used up stays empty.

use laneway_core::PortId;
use std::collections::VecDeque;

/// Things by port.
#[derive(Debug)]
pub struct Places<T> {
    places: Vec<NumberedPort<T>>,
    /// Empty ones, the longest empty first.
    free: VecDeque<u32>,
    /// The ports that are there.
    open: Vec<PortId>,
}

#[derive(Debug)]
struct NumberedPort<T> {
    /// The port that is there, or the next that will be.
    port: PortId,
    thing: Option<T>,
}

/// The place of a port in arrays that are beside this one.
pub fn place_of(port: PortId) -> usize {
    port.index() % PortId::OPEN_MAX
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { places: Vec::new(), free: VecDeque::new(), open: Vec::new() }
    }
}

impl<T> Places<T> {
    /// How many ports there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The ports, the oldest first.
    pub fn ports(&self) -> &[PortId] {
        &self.open
    }

    /// The number that the next port will have, if there is room for one.
    pub fn next(&self) -> Option<PortId> {
        match self.free.front() {
            Some(place) => Some(self.places[*place as usize].port),
            None if self.places.len() < PortId::OPEN_MAX => Some(PortId(self.places.len() as u32)),
            None => None,
        }
    }

    /// Puts a thing where [`next`](Self::next) says.
    ///
    /// # Panics
    /// Where there is no room.
    pub fn insert(&mut self, thing: T) -> PortId {
        let port = self.next().expect("the caller has asked for the next number");
        match self.free.pop_front() {
            Some(place) => self.places[place as usize].thing = Some(thing),
            None => self.places.push(NumberedPort { port, thing: Some(thing) }),
        }
        self.open.push(port);
        port
    }

    /// What is there for a port.
    #[inline]
    pub fn get(&self, port: PortId) -> Option<&T> {
        let place = self.places.get(place_of(port))?;
        place.thing.as_ref().filter(|_| place.port == port)
    }

    /// What is there for a port, to change.
    #[inline]
    pub fn get_mut(&mut self, port: PortId) -> Option<&mut T> {
        let place = self.places.get_mut(place_of(port))?;
        place.thing.as_mut().filter(|_| place.port == port)
    }

    /// What is in a place.
    #[inline]
    pub fn at(&mut self, place: usize) -> Option<&mut T> {
        self.places.get_mut(place)?.thing.as_mut()
    }

    /// Takes a port out. Its place is empty until it is [freed](Self::free).
    pub fn remove(&mut self, port: PortId) -> Option<T> {
        let place = self.places.get_mut(place_of(port)).filter(|place| place.port == port)?;
        let thing = place.thing.take()?;
        self.open.retain(|open| *open != port);
        Some(thing)
    }

    /// Lets another port have the place of one that was removed.
    pub fn free(&mut self, port: PortId) {
        let next = port.0.checked_add(PortId::OPEN_MAX as u32);
        if let Some(place) = self.places.get_mut(place_of(port))
            && let Some(next) = next.filter(|_| place.port == port && place.thing.is_none())
        {
            place.port = PortId(next);
            self.free.push_back(place_of(port) as u32);
        }
    }

    /// Every thing with its port.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &T)> {
        self.places.iter().filter_map(|place| Some((place.port, place.thing.as_ref()?)))
    }

    /// Every thing, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut T)> {
        self.places.iter_mut().filter_map(|place| Some((place.port, place.thing.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_a_number_is_not() {
        let mut places = Places::default();
        let first = [places.insert('a'), places.insert('b')];
        assert_eq!(first, [PortId(0), PortId(1)]);
        assert_eq!(places.remove(PortId(0)), Some('a'));
        assert_eq!(places.get(PortId(0)), None);
        assert_eq!(places.remove(PortId(0)), None);
        assert_eq!(places.insert('c'), PortId(2), "not freed yet");
        places.free(PortId(0));
        let again = places.insert('d');
        assert_eq!((again, place_of(again)), (PortId(PortId::OPEN_MAX as u32), 0));
        assert_eq!((places.get(again), places.get(PortId(0))), (Some(&'d'), None));
        assert_eq!(places.ports(), [PortId(1), PortId(2), again]);
        places.free(again);
        assert_eq!(places.get(again), Some(&'d'), "only an empty place is freed");
    }

    #[test]
    fn a_place_without_numbers_stays_empty() {
        let mut places = Places::default();
        let (mut port, mut uses) = (places.insert(()), 1);
        loop {
            places.remove(port).expect("it is there");
            places.free(port);
            port = places.insert(());
            if place_of(port) != 0 {
                break;
            }
            uses += 1;
        }
        assert_eq!((port, uses), (PortId(1), 1 << 18));
    }

    #[test]
    fn a_full_table_has_no_next() {
        let mut places = Places::default();
        for _ in 0..PortId::OPEN_MAX {
            places.insert(());
        }
        assert_eq!(places.next(), None);
        assert_eq!(places.remove(PortId(9)), Some(()));
        assert_eq!(places.next(), None, "not freed yet");
        places.free(PortId(9));
        assert_eq!(places.next().map(place_of), Some(9));
    }
}
