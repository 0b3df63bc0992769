//! The protocol between supervisor and agent of the emulated host.

use emulated::wire::{
    AgentJob, Beat, Decoder, ErrandEnd, FromAgent, MAX_FRAME, ToAgent, decode, decode_to_agent,
    encode, encode_to_agent, frame, read_frame,
};

use crate::input::Input;

/// A stream of frames that arrives in pieces: both readers see the same frames.
pub fn frames(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let step = 1 + input.below(256);
    let stream = input.remaining();
    let (mut decoder, mut decoded) = (Decoder::default(), Vec::new());
    'stream: for piece in stream.chunks(step) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(body)) => decoded.push(body),
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    let (mut reader, mut read) = (stream, Vec::new());
    while let Ok(Some(body)) = read_frame(&mut reader) {
        assert!(body.len() <= MAX_FRAME.min(stream.len()));
        read.push(body);
    }
    assert_eq!(decoded, read);
    decoded.iter().for_each(|body| message(body));
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let bodies: Vec<u8> = message_seeds().iter().flat_map(|body| frame(body)).collect();
    vec![[&[0], &bodies[..]].concat(), [&[9], &bodies[..]].concat(), [&[3], &[0; 16][..]].concat()]
}

/// A message that can be decoded is encoded and decoded again without change.
pub fn messages(bytes: &[u8]) {
    message(bytes);
}

fn message(body: &[u8]) {
    const LENGTH: usize = 4;
    if let Ok(message) = decode(body)
        && let Ok(framed) = encode(&message)
    {
        assert_eq!(decode(&framed[LENGTH..]).unwrap(), message);
    }
    if let Ok(message) = decode_to_agent(body)
        && let Ok(framed) = encode_to_agent(&message)
    {
        assert_eq!(decode_to_agent(&framed[LENGTH..]).unwrap(), message);
    }
}

pub fn message_seeds() -> Vec<Vec<u8>> {
    let beat = Beat { number: 3, ticks: vec![7, 9], cpu_time: 4, moved: [1, 2, 3] };
    let job = AgentJob {
        args: vec![b"boot".to_vec(), vec![0xff, b'\n']],
        env: vec![(b"A".to_vec(), b"b=c".to_vec())],
        files_out: vec![b"/tmp/out".to_vec()],
        cpus: 2,
        inject: None,
    };
    let from_agent = [
        FromAgent::Hello { version: 2, uptime_ms: 1700 },
        FromAgent::Beat(beat),
        FromAgent::Piece { index: 2, bytes: vec![0, 255, b'{'] },
        FromAgent::FileEnd { index: 2 },
        FromAgent::FileFailed { index: 1, error: "gone".into() },
        FromAgent::Done(ErrandEnd { status: 137, oom_kills: 1 }),
        FromAgent::NoneSpared { online: 2, wanted: 2 },
        FromAgent::Failed { error: "no module".into() },
    ];
    let mut framed: Vec<Vec<u8>> =
        from_agent.iter().map(|message| encode(message).unwrap()).collect();
    framed.push(encode_to_agent(&ToAgent::Start(job)).unwrap());
    framed.into_iter().map(|framed| framed[4..].to_vec()).collect()
}
