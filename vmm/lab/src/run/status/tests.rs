use std::path::Path;

use super::*;
use crate::run::job::WorkerMessage;
use study::{
    store::record::{Figures, Load},
    testing::{experiment, live},
};

fn line(experiment: &Experiment, cell: &PlannedCell, outcome: Outcome) -> CellLine {
    CellLine {
        cell: cell.cell,
        round: cell.round,
        point: experiment.points[cell.point].clone(),
        at_ms: 1,
        took: 2.0,
        load: Load::default(),
        node: None,
        outcome,
    }
}

fn now(board: &Board<'_>) -> Status {
    board.subscribe().borrow().at(Instant::now())
}

#[test]
fn a_status_follows_the_cells() {
    let experiment = experiment();
    let cells = experiment.cells();
    let finished = HashSet::from([cells[3].cell]);
    let mut board = Board::new(&experiment, &finished, 1, 1, Path::new("runs/four"));
    let first = now(&board);
    assert_eq!((first.cells, first.done, first.failed, first.left), (4, 0, 1, 3));
    assert!(first.eta > 0.0);
    let point = |cell: &PlannedCell| experiment.points[cell.point].clone();
    board.started(&cells[0], &point(&cells[0]));
    assert_eq!(now(&board).at_work[0].cell, cells[0].cell);
    let figures = Figures { seconds: 0.5, operations: vec![1, 2], ..Figures::default() };
    let done = Outcome::Done { figures: Box::new(figures) };
    board.ended(&line(&experiment, &cells[0], done));
    board.started(&cells[1], &point(&cells[1]));
    board.died(&cells[1], "a bad day");
    assert!(now(&board).at_work.is_empty());
    board.started(&cells[1], &point(&cells[1]));
    board.ended(&line(&experiment, &cells[1], Outcome::Aborted));
    let status = now(&board);
    assert_eq!((status.done, status.failed, status.aborted, status.left), (1, 1, 1, 1));
    assert_eq!(status.done + status.failed + status.aborted + status.left, status.cells);
    let ends: Vec<_> = status.last.iter().map(|past| past.end.clone()).collect();
    assert_eq!(ends, [PastEnd::Aborted, PastEnd::Done(6.0)]);
    board.over();
    assert_eq!(now(&board).state, RunState::Ended);
}

#[test]
fn the_last_cells_only_are_remembered() {
    let experiment = experiment();
    let cell = experiment.cells()[0];
    let mut board = Board::new(&experiment, &HashSet::new(), 0, 1, Path::new("x"));
    for _ in 0..100 {
        board.ended(&line(&experiment, &cell, Outcome::Aborted));
    }
    assert_eq!(now(&board).last.len(), REMEMBERED);
}

#[test]
fn orders_change_the_state_until_it_stops() {
    let experiment = experiment();
    let mut board = Board::new(&experiment, &HashSet::new(), 0, 1, Path::new("x"));
    for (order, state) in [
        (Order::Pause, RunState::Paused),
        (Order::Pause, RunState::Paused),
        (Order::Resume, RunState::Running),
        (Order::Stop, RunState::Stopping),
        (Order::Pause, RunState::Stopping),
        (Order::Resume, RunState::Stopping),
    ] {
        board.ordered(order);
        assert_eq!(now(&board).state, state, "{order:?}");
    }
}

#[test]
fn time_goes_on_between_changes() {
    let experiment = experiment();
    let cell = experiment.cells()[0];
    let mut board = Board::new(&experiment, &HashSet::new(), 0, 1, Path::new("x"));
    board.started(&cell, &experiment.points[cell.point]);
    let dated = board.subscribe().borrow().clone();
    let later = dated.at(dated.at + Duration::from_secs(1000));
    assert_eq!((later.seconds - dated.status.seconds).round(), 1000.0);
    assert_eq!((later.at_work[0].seconds.round(), later.eta), (1000.0, 0.0));
}

#[test]
fn pace_corrects_the_estimate() {
    let mut pace = CellPace { left: Duration::from_secs(30), ..CellPace::default() };
    assert_eq!(pace.eta(1, 0.0), 30.0);
    pace.ended(Duration::from_secs(10), 20.0);
    assert_eq!((pace.eta(1, 0.0), pace.eta(2, 10.0)), (40.0, 15.0));
    assert_eq!(pace.eta(1, 1e300), 0.0);
}

#[test]
fn what_a_worker_says_comes_back_whole() {
    let word = WorkerMessage::Live(Box::new(live(7)));
    let text = serde_json::to_string(&word).unwrap();
    assert!(!text.contains('\n'), "{text}");
    assert_eq!(serde_json::from_str::<WorkerMessage>(&text).unwrap(), word);
}

#[test]
fn a_status_comes_back_whole() {
    let experiment = experiment();
    let cell = experiment.cells()[0];
    let mut board = Board::new(&experiment, &HashSet::new(), 0, 1, Path::new("x"));
    board.started(&cell, &experiment.points[cell.point]);
    board.live(live(cell.cell));
    let mut status = now(&board);
    assert!(status.at_work[0].live.is_some());
    // Numbers that a decimal can be exactly.
    (status.seconds, status.eta, status.at_work[0].seconds) = (0.5, 2.25, 0.125);
    let text = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
}
