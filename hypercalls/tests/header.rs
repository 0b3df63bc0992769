//! The committed C header matches the crate.

#[test]
fn committed_header_matches_the_contract() {
    let mut text = String::new();
    hypercalls::header::render(&mut text).unwrap();
    assert_eq!(
        text,
        include_str!("../include/pvticket_abi.h"),
        "run `make header` and commit hypercalls/include/pvticket_abi.h"
    );
}
