//! The order of records of several streams at addresses that they share within one tick: found in `detect`, searched in `solve`,
//! with the possible orders at one address in `address`.

mod address;
mod detect;
mod solve;

pub(crate) use detect::Turns;
