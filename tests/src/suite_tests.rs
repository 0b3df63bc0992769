//! Selection of tests by tier.

use super::*;

fn test(name: &'static str, tier: Tier) -> Test {
    Test { name, tier, run: || Ok(()) }
}

#[test]
fn arguments_select_tiers() {
    let tests = [
        test("crate::a", Tier::Short),
        test("crate::b", Tier::Long("kills")),
        test("crate::c", Tier::Quiet("shares")),
    ];
    let selected = |arguments: &Arguments| {
        let selected = selected(arguments, &tests);
        selected.iter().map(Test::name).collect::<Vec<_>>()
    };
    let short = Arguments::default();
    assert_eq!(selected(&short), ["a"]);
    let every_tier = Arguments { include_ignored: true, ..short.clone() };
    assert_eq!(selected(&every_tier), ["a", "b", "c"]);
    let ignored = Arguments { ignored: true, ..short.clone() };
    assert_eq!(selected(&ignored), ["b", "c"]);
}
