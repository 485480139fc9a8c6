//! The bytes that one system call moved, wherever they are.

/// Bytes to read at offsets. Reading may fail anywhere: the memory of a process can be paged out or gone.
pub trait Bytes {
    /// How many there are.
    fn length(&self) -> u32;

    /// The `N` bytes from offset `at` on; `None` unless all of them can be read.
    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]>;
}

impl Bytes for [u8] {
    fn length(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }

    fn read<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        self.get(at as usize..)?.first_chunk().copied()
    }
}
