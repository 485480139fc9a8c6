//! The lab proves itself, as root: nodes come up, faults do what they say, and nothing is left afterwards. The pure parts
//! have their tests beside the code.

mod docker;
mod faults;
mod logs;
mod node;
