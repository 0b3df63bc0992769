use super::*;

fn round_trip(message: FromAgent) -> FromAgent {
    let mut decoder = Decoder::default();
    decoder.push(&encode(&message).unwrap());
    decode(&decoder.next_frame().unwrap().unwrap()).unwrap()
}

#[test]
fn messages_round_trip() {
    let beat = Beat { number: 3, ticks: vec![7, 9], cpu_time: 4, moved: [1, 2, 3] };
    for message in [
        FromAgent::Hello { version: VERSION, uptime_ms: 1700 },
        FromAgent::Beat(beat),
        FromAgent::Piece { index: 2, bytes: vec![0, 255, b'{'] },
        FromAgent::FileEnd { index: 2 },
        FromAgent::FileFailed { index: 1, error: "gone".into() },
        FromAgent::Done(ErrandEnd { status: 137, oom_kills: 1 }),
        FromAgent::NoneSpared { online: 2, wanted: 2 },
        FromAgent::Failed { error: "no module".into() },
    ] {
        assert_eq!(round_trip(message.clone()), message);
    }
    let job = AgentJob {
        args: vec![b"boot".to_vec(), vec![0xff, b'\n']],
        env: vec![(b"A".to_vec(), b"b=c".to_vec())],
        files_out: vec![b"/tmp/out".to_vec()],
        cpus: 2,
        inject: Some(Injection::Mute),
    };
    let framed = encode_to_agent(&ToAgent::Start(job.clone())).unwrap();
    assert_eq!(decode_to_agent(&framed[LENGTH..]).unwrap(), ToAgent::Start(job));
}

#[test]
fn frames_are_split_for_any_read_size() {
    let bodies: [&[u8]; 4] = [b"one", b"", &[0; 5000], b"last"];
    let stream: Vec<u8> = bodies.iter().flat_map(|body| frame(body)).collect();
    for step in [1, 3, 4, 7, 4096, stream.len()] {
        let mut decoder = Decoder::default();
        let mut frames = Vec::new();
        for part in stream.chunks(step) {
            decoder.push(part);
            while let Some(body) = decoder.next_frame().unwrap() {
                frames.push(body);
            }
        }
        assert_eq!(frames, bodies, "in steps of {step}");
    }
    let mut reader = &stream[..];
    for body in bodies {
        assert_eq!(read_frame(&mut reader).unwrap().unwrap(), body);
    }
    assert_eq!(read_frame(&mut reader).unwrap(), None);
}

#[test]
fn command_lines_are_encoded_compactly() {
    let job = AgentJob { args: vec![vec![b'a'; 128 << 10]; 7], ..AgentJob::default() };
    let framed = encode_to_agent(&ToAgent::Start(job.clone())).unwrap();
    assert!(framed.len() < ((7 * 128) << 10) + 1000, "{}", framed.len());
    assert_eq!(decode_to_agent(&framed[LENGTH..]).unwrap(), ToAgent::Start(job));
    let job = AgentJob { args: vec![vec![b'a'; 128 << 10]; 8], ..AgentJob::default() };
    assert!(matches!(encode_to_agent(&ToAgent::Start(job)), Err(WireError::TooLong(_))));
    let odd = br#"{"Start":{"args":["\u0100"],"env":[],"files_out":[],"inject":null}}"#;
    assert!(matches!(decode_to_agent(&[b"{", &odd[..]].concat()), Err(WireError::Json(_))));
}

#[test]
fn invalid_frames_are_refused() {
    let mut decoder = Decoder::default();
    decoder.push(&u32::MAX.to_le_bytes());
    assert!(matches!(decoder.next_frame(), Err(WireError::TooLong(_))));
    assert!(read_frame(&mut &[0xff; 8][..]).is_err());
    assert!(read_frame(&mut &[5, 0, 0, 0, 1][..]).is_err(), "cut short");
    assert!(matches!(decode(b""), Err(WireError::Kind(None))));
    assert!(matches!(decode(b"?"), Err(WireError::Kind(Some(b'?')))));
    assert!(matches!(decode(b"{nonsense"), Err(WireError::Json(_))));
    assert!(decode(&[PIECE, 1]).is_err());
}
