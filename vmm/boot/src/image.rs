//! Reading an image file: bounds checks first, then directly into guest memory.

use std::io::{self, ErrorKind, Seek, SeekFrom};

use vm_memory::{
    ByteValued, Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap, ReadVolatile,
    VolatileMemoryError, VolatileSlice, bitmap::Bitmap,
};

use super::error::ImageError;
use base::units::Gpa;

/// A seekable source of known length.
pub(super) struct Image<'a, R> {
    reader: &'a mut R,
    len: u64,
}

impl<'a, R: ReadVolatile + Seek> Image<'a, R> {
    pub fn new(reader: &'a mut R) -> Result<Self, ImageError> {
        let len = reader.seek(SeekFrom::End(0)).map_err(ImageError::Unreadable)?;
        Ok(Self { reader, len })
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from `offset`. Fails if the file is too short.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ImageError> {
        self.seek(offset, buffer.len() as u64)?;
        let mut slice = VolatileSlice::from(buffer);
        let read = self.reader.read_exact_volatile(&mut slice).map_err(|error| match error {
            VolatileMemoryError::IOError(error) => error,
            error => io::Error::other(error),
        });
        read.map_err(image_error)
    }

    /// Reads a plain structure from `offset`.
    pub fn read_struct<T: ByteValued>(&mut self, offset: u64) -> Result<T, ImageError> {
        let mut value = T::zeroed();
        self.read(offset, value.as_mut_slice())?;
        Ok(value)
    }

    /// Copies `len` bytes from `offset` to guest memory at `to`, which the caller has checked to be
    /// RAM. The bytes are read directly into guest memory.
    pub fn load(
        &mut self,
        offset: u64,
        len: u64,
        memory: &GuestMemoryMmap<impl Bitmap>,
        to: Gpa,
    ) -> Result<(), ImageError> {
        self.seek(offset, len)?;
        read_into(memory, to, self.reader, len).map_err(image_error)
    }

    /// Whether the first 64 MiB contain these bytes.
    pub fn contains(&mut self, bytes: &[u8]) -> Result<bool, ImageError> {
        const LIMIT: u64 = 64 << 20;
        let mut chunk = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.len.min(LIMIT) {
            let length = (self.len - at).min(chunk.len() as u64);
            let chunk = &mut chunk[..length as usize];
            self.read(at, chunk)?;
            if chunk.windows(bytes.len()).any(|window| window == bytes) {
                return Ok(true);
            }
            if at + length == self.len {
                break;
            }
            // The bytes may span two chunks.
            at += length - bytes.len() as u64 + 1;
        }
        Ok(false)
    }

    fn seek(&mut self, offset: u64, len: u64) -> Result<(), ImageError> {
        let end = offset.checked_add(len).ok_or(ImageError::Truncated)?;
        if end > self.len {
            return Err(ImageError::Truncated);
        }
        self.reader.seek(SeekFrom::Start(offset)).map(drop).map_err(ImageError::Unreadable)
    }
}

/// Copies the next `len` bytes of a file to guest memory at `to`, which the caller has checked to be
/// RAM. Fails with `UnexpectedEof` if the file has fewer bytes left.
pub(super) fn read_into(
    memory: &GuestMemoryMmap<impl Bitmap>,
    to: Gpa,
    reader: &mut impl ReadVolatile,
    len: u64,
) -> io::Result<()> {
    let count = usize::try_from(len).map_err(|_| ErrorKind::UnexpectedEof)?;
    let read = memory.read_exact_volatile_from(GuestAddress(to.0), reader, count);
    read.map_err(|error| match error {
        GuestMemoryError::IOError(error) => error,
        GuestMemoryError::PartialBuffer { .. } => ErrorKind::UnexpectedEof.into(),
        error => io::Error::other(error),
    })
}

fn image_error(error: io::Error) -> ImageError {
    match error.kind() {
        ErrorKind::UnexpectedEof => ImageError::Truncated,
        _ => ImageError::Unreadable(error),
    }
}
