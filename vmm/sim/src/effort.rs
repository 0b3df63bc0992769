/// How much is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A few seconds: some cells of each table.
    Short,
    /// A few minutes: all of them, with more operations.
    Full,
}
