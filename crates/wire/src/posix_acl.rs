//! The words of a POSIX access list as it travels: the value of `system.posix_acl_access` and
//! `system.posix_acl_default`, in Linux's own form (acl(5), `linux/posix_acl_xattr.h`). Four bytes
//! of version, then entries of eight: tag, rights, number of a user or group; all little endian.

/// The version.
pub const VERSION: u32 = 2;
/// Tag: the owner.
pub const USER_OBJ: u16 = 0x01;
/// Tag: a user.
pub const USER: u16 = 0x02;
/// Tag: the group of the object.
pub const GROUP_OBJ: u16 = 0x04;
/// Tag: a group.
pub const GROUP: u16 = 0x08;
/// Tag: the most that users, groups and the object's group have.
pub const MASK: u16 = 0x10;
/// Tag: everybody else.
pub const OTHER: u16 = 0x20;
/// The number in entries whose tag says all.
pub const NO_ID: u32 = u32::MAX;
