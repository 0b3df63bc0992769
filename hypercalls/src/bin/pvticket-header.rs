//! Prints the C header of the contract between a guest and the VMM.

#![forbid(unsafe_code)]

fn main() -> std::fmt::Result {
    let mut text = String::new();
    hypercalls::header::render(&mut text)?;
    print!("{text}");
    Ok(())
}
