//! What the tests of the parsers of the wire share with their fuzz targets.

pub(crate) mod dbus;
pub(crate) mod docker;
pub(crate) mod pieces;
pub(crate) mod torture;
pub(crate) mod ttrpc;
