//! The score card: what a reproduction has to show.

use crate::PublishedError;
use crate::keys::read;

const TEXT: &str = include_str!("../tables/card.toml");

/// An entry of the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardEntry {
    /// The entry's letter; tables name it.
    pub id: String,
    /// What it says.
    pub about: String,
}

impl CardEntry {
    /// All entries, in their order.
    pub fn all() -> Result<Vec<Self>, PublishedError> {
        let entries = read(TEXT, &["entries"], |file| {
            let all = file.tables("entries", &["id", "about"])?;
            all.iter()
                .map(|keys| Ok(Self { id: keys.text("id")?, about: keys.text("about")? }))
                .collect()
        });
        entries.map_err(|fault| PublishedError { file: "card.toml".to_owned(), fault })
    }
}
