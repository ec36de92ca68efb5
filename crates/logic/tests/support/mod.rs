//! The scenario language: see `scenarios.rs`.

pub mod disk;
pub mod lock;
pub mod room;
pub mod script;
pub mod show;
pub mod world;
