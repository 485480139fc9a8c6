//! What the tests of the parsers of the wire share with their fuzz targets.

pub(crate) mod dbus;
pub(crate) mod torture;
pub(crate) mod ttrpc;
