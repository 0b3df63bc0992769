fn main() {
    for variant in pvticket_lock_model::VARIANTS {
        for s in pvticket_lock_model::FOR_LOOM {
            let t = std::time::Instant::now();
            let r = std::panic::catch_unwind(|| {
                pvticket_lock_model::with_loom(variant.loom, s, s.effort)
            });
            println!(
                "{} loom {} {:?} {:?}",
                variant.name,
                s.name,
                r.map_err(|e| text(&*e)),
                t.elapsed()
            );
        }
        for s in pvticket_lock_model::FOR_SHUTTLE {
            let t = std::time::Instant::now();
            let r = std::panic::catch_unwind(|| {
                pvticket_lock_model::with_shuttle(variant.shuttle, s, s.effort)
            });
            println!(
                "{} shuttle {} {:?} {:?}",
                variant.name,
                s.name,
                r.map_err(|e| text(&*e)),
                t.elapsed()
            );
        }
    }
}
fn text(e: &(dyn std::any::Any + Send)) -> String {
    e.downcast_ref::<String>()
        .cloned()
        .or(e.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_default()
}
