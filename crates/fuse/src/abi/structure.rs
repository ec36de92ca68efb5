//! How a structure of the interface is declared: laid out as in C, and of the size that
//! `linux/fuse.h` gives it, or it does not compile.

/// Declares structures, each as `pub struct Name of N bytes { fields }`. Their bytes are all in
/// use (padding is a field), so that they are read from a request and written into an answer as
/// they are.
macro_rules! structures {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident of $size:literal bytes {
            $($(#[$about_field:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$about])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        pub struct $name {
            $($(#[$about_field])* pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}
