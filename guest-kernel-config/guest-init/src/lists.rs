//! NUL-terminated lists (`/pvticket/argv`, `/pvticket/env`) and the search for a command.

use core::ffi::CStr;

/// The directories that are searched for a command without a slash; also its PATH.
pub const SEARCH_PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";

/// The items of a NUL-terminated list. Bytes after the last NUL are ignored.
pub fn items(mut list: &[u8]) -> impl Iterator<Item = &CStr> {
    core::iter::from_fn(move || {
        let item = CStr::from_bytes_until_nul(list).ok()?;
        list = &list[item.to_bytes_with_nul().len()..];
        Some(item)
    })
}

/// The directory and name of each candidate path, in order: an empty directory if `name` contains
/// a slash, otherwise the directories of [`SEARCH_PATH`].
pub fn candidates(name: &[u8]) -> impl Iterator<Item = (&'static [u8], &[u8])> {
    let direct = name.contains(&b'/');
    let mut direct_path = direct.then_some((&b""[..], name)).into_iter();
    let mut searched = SEARCH_PATH.split(':').filter(move |_| !direct);
    core::iter::from_fn(move || {
        direct_path.next().or_else(|| searched.next().map(|directory| (directory.as_bytes(), name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_end_at_their_nul_and_may_be_empty() {
        let items_read: Vec<&[u8]> = items(b"sh\0-c\0\0exit 7\0tail").map(CStr::to_bytes).collect();
        assert_eq!(items_read, [&b"sh"[..], b"-c", b"", b"exit 7"]);
        assert_eq!(items(b"").count(), 0);
        assert_eq!(items(b"no end").count(), 0);
    }

    #[test]
    fn a_slash_means_no_search() {
        let items_read: Vec<_> = candidates(b"./x").collect();
        assert_eq!(items_read, [(&b""[..], &b"./x"[..])]);
        let items_read: Vec<_> = candidates(b"ls").map(|(directory, _)| directory).collect();
        assert_eq!(items_read, [&b"/bin"[..], b"/sbin", b"/usr/bin", b"/usr/sbin"]);
    }
}
