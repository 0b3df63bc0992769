//! The control socket: what a run reads there, and what `top` reads.

use lab::run::control::{Answer, LONGEST_REQUEST, LineReader, Request, Wish};
use pvticket::cli::testing::heard;

use crate::input::{Input, is_one_line};

/// Splits a stream, as a client or a run may send it in pieces, into lines, and reads each line and the whole stream.
pub fn control(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (step, limit) = (1 + input.below(256), 1 + usize::from(input.half()));
    let stream = input.rest();
    let mut lines = LineReader::new(limit.min(LONGEST_REQUEST));
    let mut found = Vec::new();
    'stream: for piece in stream.chunks(step) {
        lines.add(piece);
        loop {
            match lines.take() {
                Ok(Some(line)) => found.push(line),
                Ok(None) => break,
                Err(error) => {
                    is_one_line(&error.to_string());
                    break 'stream;
                }
            }
        }
    }
    for line in &found {
        assert!(line.len() < limit && !line.contains(&b'\n'));
        read_line(line);
    }
    read_line(stream);
}

/// Reads a line as a request, as an answer, and as what `top` shows.
fn read_line(line: &[u8]) {
    match Request::parse(line) {
        Ok(request) => {
            let written = request.line().unwrap();
            assert_eq!(Request::parse(written.trim_ascii_end()).unwrap(), request);
        }
        Err(error) => {
            let answer = Answer::bad(&error).line().unwrap();
            assert_eq!(answer.iter().position(|byte| *byte == b'\n'), Some(answer.len() - 1));
        }
    }
    if let Ok(Answer { status: Some(status), .. }) = serde_json::from_slice(line) {
        let answer = Answer::good(*status);
        let written = answer.line().unwrap();
        assert_eq!(serde_json::from_slice::<Answer>(&written).unwrap(), answer);
    }
    if let Ok(frame) = heard(line) {
        for line in frame {
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let requests: Vec<u8> = [Wish::Status, Wish::Pause, Wish::Resume, Wish::Stop, Wish::Watch]
        .into_iter()
        .flat_map(|wish| Request { wish }.line().unwrap())
        .collect();
    let status =
        br#"{"ok":true,"status":{"version":1,"name":"n","dir":"d","state":"running","cells":4,
        "done":1,"failed":1,"aborted":0,"left":2,"seconds":1.5,"eta":2.5,"at_work":[],"last":[]}}"#;
    assert!(heard(status).is_ok());
    vec![
        [&[255, 255, 255], &status[..]].concat(),
        [&[20, 0, 1], &requests[..]].concat(),
        [&[255, 255, 255], &b"{\"ok\":false,\"error\":\"x\"}"[..]].concat(),
    ]
}
