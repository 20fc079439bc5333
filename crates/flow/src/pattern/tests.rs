//! Ranges as values and masks. What is read and refused is tested where headers are: in `rule`, and in app `forward`.

use super::*;
use proptest::prelude::*;

static BYTE: Field<()> = Field { name: "byte", bits: 8, notation: Notation::Number, place: () };
static SIX_BITS: Field<()> = Field { name: "six", bits: 6, notation: Notation::Number, place: () };
static SHORT: Field<()> = Field { name: "short", bits: 16, notation: Notation::Number, place: () };
static ADDRESS: Field<()> = Field { name: "src", bits: 128, notation: Notation::Ipv6, place: () };

fn pairs(field: &'static Field<()>, spec: u128, last: u128, mask: u128) -> Vec<(u128, u128)> {
    Test { field, spec, last, mask }.pairs(1000)
}

proptest! {
    #[test]
    fn the_parts_of_a_range_are_the_range(a: u8, b: u8, mask: u8) {
        let mask = u128::from(mask);
        let (a, b) = (u128::from(a) & mask, u128::from(b) & mask);
        let (spec, last) = (a.min(b), a.max(b));
        let pairs = pairs(&BYTE, spec, last, mask);
        for value in 0..=255u128 {
            let matching = pairs.iter().filter(|(v, m)| value & m == *v).count();
            let inside = (spec..=last).contains(&(value & mask));
            prop_assert_eq!(matching, usize::from(inside), "{} in {:?}", value, pairs);
        }
    }

    #[test]
    fn a_range_of_16_bits_has_few_parts(a: u16, b: u16) {
        let (spec, last) = (a.min(b).into(), a.max(b).into());
        prop_assert!(pairs(&SHORT, spec, last, 0xffff).len() <= 30);
    }
}

#[test]
fn ranges_become_the_fewest_prefixes() {
    assert_eq!(pairs(&SHORT, 0, 0xffff, 0xffff), [(0, 0)]);
    assert_eq!(pairs(&ADDRESS, 0, u128::MAX, u128::MAX), [(0, 0)]);
    assert_eq!(pairs(&ADDRESS, u128::MAX, u128::MAX, u128::MAX), [(u128::MAX, u128::MAX)]);
    assert_eq!(pairs(&BYTE, 1, 4, 0xff), [(1, 0xff), (2, 0xfe), (4, 0xff)]);
    for spec in 0..64u128 {
        for last in spec..64 {
            let found = pairs(&SIX_BITS, spec, last, 63);
            for v in 0..64 {
                let hits = found.iter().filter(|(value, mask)| v & mask == *value).count();
                assert_eq!(hits, usize::from((spec..=last).contains(&v)));
            }
        }
    }
}

#[test]
fn a_huge_range_is_given_up_soon() {
    let test = Test { field: &ADDRESS, spec: 1, last: u128::MAX - 1, mask: u128::MAX };
    assert!((17..=18).contains(&test.pairs(16).len()));
}
