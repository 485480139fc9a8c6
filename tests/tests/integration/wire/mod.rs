//! Requests from bytes: what real programs said to each other, joined anywhere, and what no program says.

mod captures;
mod properties;
mod tables;
