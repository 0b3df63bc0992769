//! libbpf, behind safe types: all the unsafe code of this crate.

use std::{
    ffi::{CStr, c_int, c_void},
    io,
    marker::PhantomData,
    mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    slice,
};

use libbpf_sys as c;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::shared::RawRecord;

/// The call that failed, by what it does.
#[derive(Debug)]
pub(crate) struct FailedCall(pub io::Error);

type Result<T> = std::result::Result<T, FailedCall>;

/// Values that are the same bytes here and in the kernel: without padding, and every pattern of bits is one.
pub(crate) trait Plain: FromBytes + IntoBytes + Immutable {}
impl<T: FromBytes + IntoBytes + Immutable> Plain for T {}

/// A program with its maps: opened, then loaded.
#[derive(Debug)]
pub(crate) struct Object {
    object: NonNull<c::bpf_object>,
    /// What the verifier says when it refuses a program; libbpf writes to it during `load` only.
    log: Box<[u8]>,
}

// SAFETY: a `bpf_object` has no ties to a thread, and this type gives no shared mutable access to it.
unsafe impl Send for Object {}
// SAFETY: as above: the calls that take `&self` read what `load` has left, or are system calls.
unsafe impl Sync for Object {}

/// Size of the verifier's log.
const LOG: usize = 1 << 18;

impl Object {
    /// Reads an object file.
    pub fn open(file: &[u8]) -> Result<Self> {
        // libbpf's messages go to stderr, several lines each; errors tell what matters.
        // SAFETY: without a function there is nothing to call.
        unsafe { c::libbpf_set_print(None) };
        let mut log = vec![0; LOG].into_boxed_slice();
        let mut options = c::bpf_object_open_opts {
            sz: size_of::<c::bpf_object_open_opts>() as u64,
            ..Default::default()
        };
        (options.kernel_log_buf, options.kernel_log_size) = (log.as_mut_ptr().cast(), LOG as u64);
        // SAFETY: file and options live during the call, which copies both; the log lives as long as
        // the object, and is read only when no call is in progress.
        let object = unsafe {
            c::bpf_object__open_mem(file.as_ptr().cast(), file.len() as u64, &raw const options)
        };
        Ok(Self { object: made(object)?, log })
    }

    fn map(&self, name: &CStr) -> Result<NonNull<c::bpf_map>> {
        // SAFETY: the object is open.
        made(unsafe { c::bpf_object__find_map_by_name(self.object.as_ptr(), name.as_ptr()) })
    }

    /// Refuses a map unless its keys have four bytes, and its values this many.
    pub fn check_sizes(&self, name: &CStr, value: usize) -> Result<()> {
        let map = self.map(name)?;
        // SAFETY: the map belongs to this object.
        let sizes =
            unsafe { [c::bpf_map__key_size(map.as_ptr()), c::bpf_map__value_size(map.as_ptr())] };
        if sizes.map(|size| size as usize) == [size_of::<u32>(), value] {
            return Ok(());
        }
        let [key, has] = sizes;
        let mismatch = format!("keys of {key} bytes and values of {has}, not of 4 and {value}");
        Err(FailedCall(io::Error::other(mismatch)))
    }

    /// A loaded map whose values are `T`s.
    pub fn values<T: Plain>(&self, name: &CStr) -> Result<Values<'_, T>> {
        self.check_sizes(name, size_of::<T>())?;
        Ok(Values { map: self.descriptor(name)?, value: PhantomData })
    }

    /// Sets the initial contents of a map, before it is loaded. libbpf refuses a value of another size.
    pub fn set_initial<T: Plain>(&mut self, name: &CStr, value: &T) -> Result<()> {
        let map = self.map(name)?.as_ptr();
        let value = value.as_bytes();
        // SAFETY: the value has this many bytes.
        done(unsafe {
            c::bpf_map__set_initial_value(map, value.as_ptr().cast(), value.len() as u64)
        })
    }

    /// Sets how many entries a map has, or bytes a ring buffer, before it is loaded.
    pub fn set_size(&mut self, name: &CStr, size: u32) -> Result<()> {
        let map = self.map(name)?.as_ptr();
        // SAFETY: the map belongs to this object.
        done(unsafe { c::bpf_map__set_max_entries(map, size) })
    }

    /// Loads programs and maps into the kernel.
    pub fn load(&mut self) -> Result<()> {
        // SAFETY: the object is open, and not loaded yet: its owner calls this once.
        done(unsafe { c::bpf_object__load(self.object.as_ptr()) })
    }

    /// What the verifier said last.
    pub fn log(&self) -> String {
        let end = self.log.iter().position(|byte| *byte == 0).unwrap_or(self.log.len());
        String::from_utf8_lossy(&self.log[..end]).into_owned()
    }

    /// A map's descriptor.
    pub fn descriptor(&self, name: &CStr) -> Result<BorrowedFd<'_>> {
        let map = self.map(name)?;
        // SAFETY: the map belongs to this object.
        let fd = unsafe { c::bpf_map__fd(map.as_ptr()) };
        done(fd.min(0))?;
        // SAFETY: the descriptor is open as long as the object.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Attaches the scheduler of this map.
    pub fn attach(&self, name: &CStr) -> Result<Link> {
        let map = self.map(name)?;
        // SAFETY: the map is a loaded one of this object.
        Ok(Link(made(unsafe { c::bpf_map__attach_struct_ops(map.as_ptr()) })?))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is open, and nothing refers to it any more.
        unsafe { c::bpf_object__close(self.object.as_ptr()) };
    }
}

/// A scheduler that is attached; dropping it detaches it.
#[derive(Debug)]
pub(crate) struct Link(NonNull<c::bpf_link>);

// SAFETY: a `bpf_link` has no ties to a thread.
unsafe impl Send for Link {}
// SAFETY: nothing is done with a shared link.
unsafe impl Sync for Link {}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the link is attached, and owned by this value.
        unsafe { c::bpf_link__destroy(self.0.as_ptr()) };
    }
}

/// A map with keys of four bytes and values of `T`'s size: [`Object::values`] has compared both.
#[derive(Debug)]
pub(crate) struct Values<'a, T> {
    map: BorrowedFd<'a>,
    value: PhantomData<T>,
}

impl<T: Plain> Values<'_, T> {
    /// Puts a value into the storage of the thread with this descriptor.
    pub fn put_for(&self, thread: BorrowedFd<'_>, value: &T) -> Result<()> {
        self.update(thread.as_raw_fd().cast_unsigned(), value)
    }

    /// Puts a value into an array.
    pub fn put_at(&self, place: u32, value: &T) -> Result<()> {
        self.update(place, value)
    }

    fn update(&self, key: u32, value: &T) -> Result<()> {
        // SAFETY: key and value are as large as the map's, by the contract of this type.
        done(unsafe {
            let (key, value) = (ptr::from_ref(&key).cast(), value.as_bytes().as_ptr().cast());
            c::bpf_map_update_elem(self.map.as_raw_fd(), key, value, 0)
        })
    }

    /// Reads the first value of an array.
    pub fn first(&self) -> Result<T> {
        let mut value = T::new_zeroed();
        let key = 0_u32;
        // SAFETY: the map's values have T's size, by the contract of this type.
        done(unsafe {
            let (key, to) = (ptr::from_ref(&key).cast(), value.as_mut_bytes().as_mut_ptr().cast());
            c::bpf_map_lookup_elem(self.map.as_raw_fd(), key, to)
        })?;
        Ok(value)
    }
}

/// A reader of a ring buffer of records.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    ring: NonNull<c::ring_buffer>,
    /// Where `keep` puts what it gets; owned by this value.
    records: NonNull<Vec<RawRecord>>,
}

// SAFETY: a `ring_buffer` has no ties to a thread, and the records belong to this value alone.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// A reader of the ring buffer in this map.
    pub fn new(map: BorrowedFd<'_>) -> Result<Self> {
        let records = NonNull::from(Box::leak(Box::<Vec<RawRecord>>::default()));
        // SAFETY: the map is a ring buffer; the records live as long as the reader.
        let ring = unsafe {
            let to = records.as_ptr().cast();
            c::ring_buffer__new(map.as_raw_fd(), Some(keep), to, ptr::null())
        };
        match made(ring) {
            Ok(ring) => Ok(Self { ring, records }),
            Err(error) => {
                // SAFETY: leaked above, and nothing refers to it.
                drop(unsafe { Box::from_raw(records.as_ptr()) });
                Err(error)
            }
        }
    }

    /// Takes the records that are there.
    pub fn take(&mut self) -> Result<Vec<RawRecord>> {
        // SAFETY: the reader is open; it calls `keep` during this call only.
        done(unsafe { c::ring_buffer__consume(self.ring.as_ptr()) })?;
        // SAFETY: no call of `keep` is in progress, and `self` is borrowed exclusively.
        Ok(mem::take(unsafe { self.records.as_mut() }))
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: the reader is open; after it nothing refers to the records, which `new` leaked.
        unsafe {
            c::ring_buffer__free(self.ring.as_ptr());
            drop(Box::from_raw(self.records.as_ptr()));
        }
    }
}

/// Keeps a record of the ring buffer. One of another length is left out.
unsafe extern "C" fn keep(to: *mut c_void, record: *mut c_void, size: c::size_t) -> c_int {
    // SAFETY: libbpf passes the context of `RingBuffer::new`, and a record of this size.
    let (records, bytes) = unsafe {
        (
            &mut *to.cast::<Vec<RawRecord>>(),
            slice::from_raw_parts(record.cast::<u8>(), size as usize),
        )
    };
    records.extend(RawRecord::read_from_bytes(bytes));
    0
}

/// A pointer from libbpf: null is a failure.
fn made<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| FailedCall(io::Error::last_os_error()))
}

/// A status from libbpf: negative is a failure.
fn done(status: c_int) -> Result<()> {
    if status < 0 { Err(FailedCall(io::Error::from_raw_os_error(-status))) } else { Ok(()) }
}

/// Puts the calling thread into the class of BPF schedulers.
pub(crate) fn change_class() -> Result<()> {
    /// `SCHED_EXT` (include/uapi/linux/sched.h).
    const SCHED_EXT: c_int = 7;
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; the parameters are read during the call.
    match unsafe { libc::sched_setscheduler(0, SCHED_EXT, &raw const none) } {
        0 => Ok(()),
        _ => Err(FailedCall(io::Error::last_os_error())),
    }
}
