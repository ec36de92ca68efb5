//! The surroundings of the machines; of scenarios see `scenarios.rs`.

pub mod disk;
pub mod lock;
pub mod operations;
pub mod room;
pub mod script;
pub mod show;
pub mod swarm;
pub mod world;
