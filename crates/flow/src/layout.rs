//! C structs <-> Rust structs, field by field at the C compiler's offsets.
//!
//! The Rust structs order their fields for the cache; the bytes that cross the kernel boundary are
//! those of the C headers on a little-endian machine. Each offset is written once, in the
//! `c_struct!` table next to its struct, and a test asks the C compiler whether it agrees.
//! Padding is never read, and left as it is on writing (callers start from zeroed bytes).

/// A value with a fixed place in a C struct.
pub(crate) trait CField: Sized {
    /// `sizeof`.
    const BYTES: usize;

    /// Reads the value from the start of `bytes`; `None` if they are too few or hold a code that
    /// has no meaning.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Writes the value to the start of `bytes`, which must have room.
    fn write(&self, bytes: &mut [u8]);
}

macro_rules! int_fields {
    ($($int:ty)+) => {$(
        impl CField for $int {
            const BYTES: usize = size_of::<$int>();

            #[inline(always)]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|b| <$int>::from_le_bytes(*b))
            }

            #[inline(always)]
            fn write(&self, bytes: &mut [u8]) {
                bytes[..size_of::<$int>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}

// u128 is `struct lw_square`: low word first, as little-endian bytes have it.
int_fields!(u8 u16 u32 u64 u128);

impl CField for bool {
    const BYTES: usize = 1;

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        u8::read(bytes).map(|b| b != 0)
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        u8::from(*self).write(bytes);
    }
}

impl<T: CField + Copy + Default, const N: usize> CField for [T; N] {
    const BYTES: usize = T::BYTES * N;

    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut array = [T::default(); N];
        for (i, item) in array.iter_mut().enumerate() {
            *item = T::read(bytes.get(i * T::BYTES..)?)?;
        }
        Some(array)
    }

    #[inline(always)]
    fn write(&self, bytes: &mut [u8]) {
        for (i, item) in self.iter().enumerate() {
            item.write(&mut bytes[i * T::BYTES..]);
        }
    }
}

/// Places a struct's fields: `c_struct!(Record, "lw_record", 104, { ts_ns @ 0, ... })`.
macro_rules! c_struct {
    ($rust:ident, $c:literal, $bytes:expr, { $($field:ident @ $at:literal,)+ }) => {
        impl crate::layout::CField for $rust {
            const BYTES: usize = $bytes;

            #[inline(always)]
            fn read(bytes: &[u8]) -> Option<Self> {
                let bytes: &[u8; $bytes] = bytes.first_chunk()?;
                Some($rust { $($field: crate::layout::CField::read(&bytes[$at..])?,)+ })
            }

            #[inline(always)]
            fn write(&self, bytes: &mut [u8]) {
                let bytes = &mut bytes[..$bytes];
                $(self.$field.write(&mut bytes[$at..]);)+
            }
        }

        #[cfg(test)]
        impl $rust {
            /// The C struct's name, size, and fields with offsets.
            pub(crate) const C_LAYOUT: crate::layout::tests::CLayout =
                ($c, $bytes, &[$((stringify!($field), $at),)+]);
        }
    };
}
pub(crate) use c_struct;

#[cfg(test)]
pub(crate) mod tests {
    use crate::{Flow, FlowKey, FlowLimits, Record, Side, Span};
    use laneway_testkit::skip;
    use std::{fmt::Write as _, process::Command};

    pub(crate) type CLayout = (&'static str, usize, &'static [(&'static str, usize)]);

    /// Prints size and offsets of every mirrored struct, and the codes the two sides share.
    fn program(layouts: &[CLayout]) -> String {
        let mut text = String::from(
            "#include <stdio.h>\n#include <stddef.h>\n#include \"flow.h\"\nint main(void)\n{\n",
        );
        for (name, _, fields) in layouts {
            writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
            for (field, _) in *fields {
                writeln!(
                    text,
                    "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));"
                )
                .unwrap();
            }
        }
        text.push_str("return 0;\n}\n");
        text
    }

    #[test]
    fn the_c_compiler_places_every_field_where_we_read_it() {
        if Command::new("cc").arg("--version").output().is_err() {
            skip("there is no C compiler `cc`");
            return;
        }
        let layouts = [
            Record::C_LAYOUT,
            FlowKey::C_LAYOUT,
            Span::C_LAYOUT,
            Side::C_LAYOUT,
            Flow::C_LAYOUT,
            FlowLimits::C_LAYOUT,
        ];
        let dir = std::env::temp_dir().join(format!("laneway-layout-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (source, binary) = (dir.join("layout.c"), dir.join("layout"));
        std::fs::write(&source, program(&layouts)).unwrap();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let compiled = Command::new("cc")
            .args(["-Wall", "-Werror", "-Wno-unused-function"])
            .args([format!("-I{root}/bpf/include"), format!("-I{root}/apps/features/bpf")])
            .args([source.as_os_str(), "-o".as_ref(), binary.as_os_str()])
            .output()
            .unwrap();
        let printed = Command::new(&binary).output();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

        let mut ours = String::new();
        for (name, bytes, fields) in layouts {
            writeln!(ours, "{name} {bytes}").unwrap();
            for (field, at) in fields {
                writeln!(ours, "{name}.{field} {at}").unwrap();
            }
        }
        assert_eq!(ours, String::from_utf8(printed.unwrap().stdout).unwrap());
    }
}
