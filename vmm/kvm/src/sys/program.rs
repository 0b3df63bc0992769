//! The pages of this program's own executable in memory.

use std::{ffi::c_void, ops::Range};

/// The only base page size of x86-64.
const PAGE: u64 = 4096;

/// Unmaps the program's code and constants, i.e. the pages of the executable that this process never
/// writes. A page returns from the page cache by a minor fault on its next use, so only pages in use stay
/// resident, not the code that parsed the command line and loaded the guest.
///
/// Writable segments are left alone, including pages that became read-only after relocation (relro).
/// Breakpoints of a debugger and uprobes of the kernel live in private copies of the program's pages, and
/// those set before this call are lost.
pub fn release_unused_pages() {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    // SAFETY: the callback has the signature required by dl_iterate_phdr(3). It receives the pointer
    // passed here, to a Vec that outlives the call and that nothing else uses.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut ranges).cast()) };
    for range in ranges {
        // SAFETY: the range is inside a read-only segment mapped from the program's file, so each of its
        // pages has the file's contents before and after (madvise(2), MADV_DONTNEED: "from the up-to-date
        // contents of the underlying mapped file"). On failure the pages stay where they are.
        unsafe { libc::madvise(range.start as *mut c_void, range.len(), libc::MADV_DONTNEED) };
    }
}

/// Collects the read-only segments of the first object, which is the program itself.
unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    ranges: *mut c_void,
) -> libc::c_int {
    // SAFETY: dl_iterate_phdr passes a live, complete description, and the caller's pointer.
    let (info, ranges) = unsafe { (&*info, &mut *ranges.cast::<Vec<Range<usize>>>()) };
    // SAFETY: `dlpi_phdr` points to `dlpi_phnum` mapped headers of the object.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    ranges.extend(
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0)
            .filter_map(|header| whole_pages(info.dlpi_addr + header.p_vaddr, header.p_filesz)),
    );
    // Nonzero stops the iteration: other objects, such as the vDSO, have no file.
    1
}

/// Returns the pages entirely within the segment. Its first and last page may be shared with other
/// segments.
fn whole_pages(start: u64, size: u64) -> Option<Range<usize>> {
    let first = start.checked_next_multiple_of(PAGE)?;
    let end = start.checked_add(size)? / PAGE * PAGE;
    (first < end).then_some(first as usize..end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident_file_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn released_pages_fault_in_again() {
        let before = resident_file_kib();
        release_unused_pages();
        let after = resident_file_kib();
        assert!(after < before, "{before} KiB, then {after}");
        let words: Vec<String> = (0..1000).map(|number| format!("{number:>5}")).collect();
        assert_eq!((words.len(), words[999].as_str()), (1000, "  999"));
    }

    #[test]
    fn whole_pages_excludes_partial_pages() {
        assert_eq!(whole_pages(0x1000, 0x2000), Some(0x1000..0x3000));
        assert_eq!(whole_pages(0x1940, 0x2000), Some(0x2000..0x3000));
        assert_eq!(whole_pages(0x1940, 0x800), None);
        assert_eq!(whole_pages(0x1000, 0xfff), None);
    }
}
