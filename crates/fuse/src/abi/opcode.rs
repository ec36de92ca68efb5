//! Opcodes of the kernel's FUSE interface, and their names for counters and messages.

/// The kind of a request. Values the kernel may add later are representable: they are just
/// numbers without a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Opcode(pub u32);

macro_rules! opcodes {
    ($($name:ident = $value:literal),* $(,)?) => {
        #[allow(missing_docs)] // The names are the kernel's, without `FUSE_`.
        impl Opcode {
            $(pub const $name: Opcode = Opcode($value);)*

            /// All opcodes known here, in the order of their numbers.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];

            /// The kernel's name without `FUSE_`, or `UNKNOWN`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

opcodes! {
    LOOKUP = 1,
    FORGET = 2,
    GETATTR = 3,
    SETATTR = 4,
    READLINK = 5,
    SYMLINK = 6,
    MKNOD = 8,
    MKDIR = 9,
    UNLINK = 10,
    RMDIR = 11,
    RENAME = 12,
    LINK = 13,
    OPEN = 14,
    READ = 15,
    WRITE = 16,
    STATFS = 17,
    RELEASE = 18,
    FSYNC = 20,
    SETXATTR = 21,
    GETXATTR = 22,
    LISTXATTR = 23,
    REMOVEXATTR = 24,
    FLUSH = 25,
    INIT = 26,
    OPENDIR = 27,
    READDIR = 28,
    RELEASEDIR = 29,
    FSYNCDIR = 30,
    GETLK = 31,
    SETLK = 32,
    SETLKW = 33,
    ACCESS = 34,
    CREATE = 35,
    INTERRUPT = 36,
    BMAP = 37,
    DESTROY = 38,
    IOCTL = 39,
    POLL = 40,
    NOTIFY_REPLY = 41,
    BATCH_FORGET = 42,
    FALLOCATE = 43,
    READDIRPLUS = 44,
    RENAME2 = 45,
    LSEEK = 46,
    COPY_FILE_RANGE = 47,
    SETUPMAPPING = 48,
    REMOVEMAPPING = 49,
    SYNCFS = 50,
    TMPFILE = 51,
    STATX = 52,
    COPY_FILE_RANGE_64 = 53,
}

impl Opcode {
    /// Whether the kernel waits for an answer to requests of this kind.
    #[must_use]
    pub const fn expects_reply(self) -> bool {
        !matches!(
            self,
            Opcode::FORGET | Opcode::BATCH_FORGET | Opcode::INTERRUPT | Opcode::NOTIFY_REPLY
        )
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            "UNKNOWN" => write!(f, "opcode {}", self.0),
            name => f.write_str(name),
        }
    }
}
