//! What guests are made of, made before any test runs: nothing heavy runs beside a test.

use anyhow::Result;

use super::command::Selection;
use super::image;
use crate::lanes::in_lanes;
use crate::setup;

/// How many images are made at once: half of the time each is one process that unpacks.
const LANES: usize = 2;

/// Makes the images that are not there.
///
/// # Errors
/// When the tools are missing. An image that cannot be made is its guest's failure, met and told again there.
pub(crate) fn ahead(selection: &Selection) -> Result<()> {
    setup::vm_tools()?;
    in_lanes(selection.suites(), LANES, |suite| drop(image::get(*suite, false)));
    Ok(())
}
