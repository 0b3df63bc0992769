//! Progress bars, all on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Creates a bar with this length, if it is known, and this template (indicatif's syntax).
pub fn on_stderr(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    // All our templates are valid; otherwise the default style is used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
