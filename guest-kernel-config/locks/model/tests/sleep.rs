//! Mutexes, counters, lockrefs and the VMM's halts pass every check, and each mutant of them fails
//! one.
//!
//! `cargo test --manifest-path .../model/Cargo.toml --test sleep -- --nocapture` prints one row for
//! each.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    time::Instant,
};

use pvticket_lock_model::{
    halts,
    sleep::{self, Expectation, Variant},
};

/// The failure of the first check that catches `variant`; the product goes through all checks.
fn caught_by(variant: &Variant) -> Option<String> {
    let mut caught = None;
    for check in variant.checks.iter().filter(|check| check.is_for(variant.engine)) {
        let began = Instant::now();
        let run = AssertUnwindSafe(|| check.explore(variant.engine));
        if let Err(panic) = panic::catch_unwind(run) {
            let wrong = what(&*panic);
            caught.get_or_insert(format!("{}: {wrong}", check.name));
            if variant.verdict != Expectation::Sound {
                break;
            }
            println!("FAILED: {}, {:?}, {}: {wrong}", variant.name, variant.engine, check.name);
        }
        if variant.verdict == Expectation::Sound {
            println!("    {}: {:.2} s", check.name, began.elapsed().as_secs_f32());
        }
    }
    caught
}

/// The message of a panic in one line.
fn what(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    line.chars().take(60).collect()
}

/// Checks that all variants of `system` give the expected result.
fn judge(system: &str, is_chosen: impl Fn(&Expectation) -> bool) {
    // Mutants panic by design.
    panic::set_hook(Box::new(|_| ()));
    let of = |variant: &&Variant| {
        variant.name.split(':').next() == Some(system) && is_chosen(&variant.verdict)
    };
    let mut failures = 0;
    for variant in sleep::VARIANTS.iter().chain(halts::VARIANTS).filter(of) {
        let began = Instant::now();
        let caught = caught_by(variant);
        let is_right = caught.is_some() == (variant.verdict == Expectation::Caught);
        failures += usize::from(!is_right);
        let verdict = if is_right { "" } else { "FAILED: " };
        let by = caught.unwrap_or_else(|| "nothing".to_owned());
        let (name, rule) = (variant.name, variant.rule);
        let (engine, took) = (variant.engine, began.elapsed().as_secs_f32());
        println!("{verdict}{name:48}  {rule:42}  {engine:?}, {by} ({took:.2} s)");
    }
    if failures > 0 {
        println!("{failures} not as they should be");
        // The message is printed above: the hook prints nothing.
        panic!("variants that are not as they should be");
    }
}

fn is_sound(verdict: &Expectation) -> bool {
    *verdict == Expectation::Sound
}

#[test]
fn mutexes_pass() {
    judge("mutex", is_sound);
}

#[test]
fn mutants_of_mutexes_are_caught() {
    judge("mutex", |verdict| !is_sound(verdict));
}

#[test]
fn counters_pass() {
    judge("counter", is_sound);
}

#[test]
fn the_hole_and_mutants_of_counters_are_caught() {
    judge("counter", |verdict| !is_sound(verdict));
}

#[test]
fn lockrefs_pass() {
    judge("lockref", is_sound);
}

#[test]
fn mutants_of_lockrefs_are_caught() {
    judge("lockref", |verdict| !is_sound(verdict));
}

#[test]
fn halts_pass() {
    judge("halts", is_sound);
}

#[test]
fn mutants_of_halts_are_caught() {
    judge("halts", |verdict| !is_sound(verdict));
}
