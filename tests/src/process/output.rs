//! The output of a child process.

use std::{
    fs::File,
    io::Read,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// The output of one descriptor so far.
#[derive(Debug, Clone)]
pub struct Collected(Arc<Mutex<Output>>);

#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    ended: bool,
}

impl Collected {
    /// Reads on a thread until the end of the file; None counts as ended.
    pub fn from(source: Option<File>) -> Self {
        let output = Output { ended: source.is_none(), ..Output::default() };
        let collected = Self(Arc::new(Mutex::new(output)));
        if let Some(file) = source {
            let reader = collected.clone();
            thread::spawn(move || reader.read(file));
        }
        collected
    }

    fn read(&self, mut file: File) {
        let mut buffer = [0; 16 << 10];
        loop {
            let count = file.read(&mut buffer).unwrap_or(0);
            let mut output = self.lock();
            output.bytes.extend(&buffer[..count]);
            if count == 0 {
                output.ended = true;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Output> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_ended(&self) -> bool {
        self.lock().ended
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    pub fn contains(&self, text: &str) -> bool {
        self.lock().bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Returns the line that begins at this offset, if it is complete.
    pub fn line(&self, from: usize) -> Option<String> {
        let output = self.lock();
        let rest = output.bytes.get(from..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some(String::from_utf8_lossy(&rest[..=end]).into_owned())
    }
}
