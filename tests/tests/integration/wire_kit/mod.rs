//! What the tests and the fuzz targets of the wire share.

pub(crate) mod torture;
