//! `laneway run features`: rows from a live lane, by one worker or several; its own verb is [`verb`](crate::verb).

use crate::arguments::{ExtractArguments, strictly};
use crate::columns::{self, Profile};
use crate::{
    Aggregation, Config, Disposition, FeaturesKind, FeaturesRun, Ledger, Level, RowSinks,
    WitnessedRows, verb,
};
use clap::Args;
use laneway_kinds::{
    Account, AppCommand, AppVerb, ArmPlace, Ended, Exit, Failure, Finished, LaneFacts, On, Ports,
    ReferenceTable, RunReport, Session, Shape, Witness, WorkerHeadings, WorkerLine,
};
use laneway_page::text::grouped;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The app as `laneway run` has it: rows go to an output.
pub type RowsKind = FeaturesKind<RowSinks>;

/// Its options beside those of every run.
#[derive(Args, Debug)]
pub struct FeaturesArguments {
    #[command(flatten)]
    extract: ExtractArguments,
    /// Put flows together in the kernel (lane xdp, level flow)
    #[arg(long)]
    in_kernel: bool,
    /// Frames go on to the kernel's stack after they were looked at: a monitor [the default, but on lanes
    /// where that costs a system call per frame, which ask for one of the two]
    #[arg(long, conflicts_with = "drop")]
    pass: bool,
    /// Frames end here, where the lane can take them away from the kernel (xdp, afxdp)
    #[arg(long)]
    drop: bool,
    /// Take a frame's number from its source MAC, where the generator of a race writes it
    #[arg(long)]
    number_from_mac: bool,
    /// End after N rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Keep the thread that writes the rows on this CPU [default: those that no worker is kept on]
    #[arg(long, value_name = "CPU")]
    writer_cpu: Option<usize>,
}

impl AppCommand for RowsKind {
    type Arguments = FeaturesArguments;

    const HELP: &'static str = "\
Ends at Ctrl-C, after --duration or --count, or when a capture file is at its end; what each port
obtained and the ledger of all frames go to standard error. An interface that carries a default
route is refused without --force. Several workers (on lanes packet, afxdp and dpdk) write to one
output, in no fixed order; each numbers its own packet rows.

Examples:
  sudo laneway run features --lane xdp --on eth1 -o packets.parquet --duration 60
  sudo laneway run features --lane xdp --on eth1 --level flow --in-kernel -o flows.arrow
  sudo laneway run features --lane afxdp:copy --on eth1,eth2 --drop -o - --format jsonl | jq .
  sudo laneway run features --lane packet:ring --on eth1 --workers 2 --level flow -o flows.parquet
  laneway run features --lane pcap --on capture.pcap -o packets.csv";

    fn reference() -> Vec<ReferenceTable> {
        let table = |name: &str, title: &str, rows| ReferenceTable {
            name: format!("features-{name}"),
            title: format!("Columns of {title} rows"),
            headings: vec!["column", "type", "unit", "definition", "elsewhere"],
            rows,
        };
        // Of the first packets of a flow two stand for all.
        let flows = columns::flows(Profile::Full, 0, 2).described();
        vec![
            table("packets", "packet", columns::packets(0).described()),
            table("flows", "flow", flows),
        ]
    }

    fn plan(arguments: &FeaturesArguments, on: On<'_>) -> Result<FeaturesRun<RowSinks>, Failure> {
        if on.interfaces.is_empty() {
            return Err(Failure::input(format!(
                "features of which frames? Lane {} needs --on: give --on IFACE, or a capture file \
                 on lane pcap",
                on.lane.name
            )));
        }
        let (mut config, mut output) = arguments.extract.plan()?;
        if on.lane.ports == Ports::Files {
            if on.interfaces.len() > 1 {
                return Err(Failure::input(format!(
                    "{} captures on lane {} would be rows of one source, and one flow where two have the same \
                     addresses; use `laneway features`, which tells captures apart",
                    on.interfaces.len(),
                    on.lane.name
                )));
            }
            on.interfaces.iter().try_for_each(|file| verb::keep(Path::new(file), output.file()))?;
        }
        config.disposition = disposition(arguments, on.lane)?;
        config.number_from_mac = arguments.number_from_mac;
        config.aggregation = aggregation(arguments, on.lane, &config)?;
        output.fact("lane", on.spec);
        for (index, interface) in on.interfaces.iter().enumerate() {
            output.fact(&format!("interface.{index}"), interface);
        }
        let FeaturesArguments { count, writer_cpu, .. } = *arguments;
        let sinks = RowSinks::new(output, count, writer_cpu, arguments.extract.strict);
        Ok(FeaturesRun { config, sinks })
    }

    fn begin(
        run: &FeaturesRun<RowSinks>,
        on: On<'_>,
        session: &Session<'_>,
    ) -> Result<(), Failure> {
        run.sinks.begin(&run.config, on, session)
    }

    fn leftover(run: &FeaturesRun<RowSinks>) -> Option<PathBuf> {
        run.sinks.partial_path()
    }

    fn begun(_run: &FeaturesRun<RowSinks>, _on: On<'_>) -> Option<String> {
        None
    }

    fn finish(
        run: &FeaturesRun<RowSinks>,
        on: On<'_>,
        finished: Option<Finished<'_, Ledger>>,
    ) -> Result<(), Failure> {
        run.sinks.finish(on, finished)
    }

    fn account(
        run: &FeaturesRun<RowSinks>,
        _on: On<'_>,
        lane: &RunReport,
        ledger: &Ledger,
    ) -> Account {
        let FeaturesRun { sinks, .. } = run;
        let has_enough = lane.ended == Ended::App && sinks.are_enough();
        let rows = sinks.rows();
        Account {
            unconfirmed: 0,
            one: "frame",
            seen_heading: Ledger::SEEN_HEADING,
            seen: ledger.seen,
            accounted: ledger.accounted(),
            headline: Some(match sinks.output().is_none() {
                true => "no rows kept, as -o none asks".to_owned(),
                false => format!("{} rows to {}", grouped(rows), sinks.output().name()),
            }),
            ended: has_enough.then_some("to the count asked for"),
            lines: ledger.lines(),
            text: String::new(),
            json: Map::from_iter([
                ("output".to_owned(), json!(sinks.output().json())),
                ("rows".to_owned(), json!(rows)),
                ("rows_beyond_count".to_owned(), json!(sinks.rows_beyond_count())),
                ("ledger".to_owned(), json!(ledger)),
            ]),
        }
    }

    fn stdout_has_rows(run: &FeaturesRun<RowSinks>) -> bool {
        run.sinks.output().to_stdout()
    }

    fn judge(
        run: &FeaturesRun<RowSinks>,
        _account: &Account,
        ledger: &Ledger,
    ) -> Result<Exit, Failure> {
        match ledger.complaint() {
            Some(complaint) => Err(Failure::Because(Exit::Invalid, complaint)),
            None => strictly(ledger, run.sinks.is_strict()),
        }
    }

    type Arm<'a, W: Witness + 'a> = FeaturesKind<WitnessedRows<'a, W>>;

    fn arm<'a, W: Witness + 'a>(
        run: &'a FeaturesRun<RowSinks>,
        witness: W,
    ) -> FeaturesRun<WitnessedRows<'a, W>> {
        let sinks = WitnessedRows::new(&run.sinks, witness);
        FeaturesRun { config: run.config.clone(), sinks }
    }

    fn place(place: &ArmPlace<'_>) -> Vec<String> {
        let rows = place.memory.join("rows.arrow");
        let words = ["--number-from-mac", "--writer-cpu", &place.cpu.to_string(), "-o"];
        words.map(str::to_owned).into_iter().chain([rows.display().to_string()]).collect()
    }

    fn verbs() -> Vec<AppVerb> {
        vec![verb::VERB]
    }

    fn worker_json(ledger: &Ledger) -> Map<String, Value> {
        Map::from_iter([("ledger".to_owned(), json!(ledger))])
    }

    fn worker_headings(_run: &FeaturesRun<RowSinks>) -> WorkerHeadings {
        WorkerHeadings { seen: "seen", sent: "delivered" }
    }

    fn worker_line(_run: &FeaturesRun<RowSinks>, _lane: &RunReport, ledger: &Ledger) -> WorkerLine {
        WorkerLine { seen: ledger.seen, sent: ledger.delivered }
    }

    fn worker_lost(_lane: &RunReport, ledger: &Ledger) -> u64 {
        ledger.lost()
    }
}

/// What becomes of a frame that was looked at. Where passing it on has a price, the user says which it is to be.
fn disposition(arguments: &FeaturesArguments, lane: &LaneFacts) -> Result<Disposition, Failure> {
    match (arguments.drop, arguments.pass, lane.passing_costs) {
        (true, ..) => Ok(Disposition::Drop),
        (false, false, Some(costs)) => Err(Failure::input(format!(
            "lane {} takes frames away from the kernel, and giving one back costs {costs}: say --drop \
             (frames end here, which costs nothing) or --pass (they go on to the kernel's stack)",
            lane.name
        ))),
        _ => Ok(Disposition::Pass),
    }
}

/// Where flows are put together: in the kernel only where that is asked for and can be.
fn aggregation(
    arguments: &FeaturesArguments,
    lane: &LaneFacts,
    config: &Config,
) -> Result<Aggregation, Failure> {
    if !arguments.in_kernel {
        return Ok(Aggregation::User);
    }
    if lane.carries.has(Shape::Kernel) && config.level == Level::Flow {
        return match config.first_packets {
            0 => Ok(Aggregation::Kernel),
            _ => Err(Failure::input(
                "--first-packets cannot be used here: flows that are put together in the kernel keep no packet of \
                 theirs; leave out --in-kernel",
            )),
        };
    }
    Err(Failure::input(format!(
        "--in-kernel puts flows together in an XDP program, and this is lane {} at level {}; use \
         --lane xdp --level flow",
        lane.name,
        if config.level == Level::Flow { "flow" } else { "packet" },
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::report;
    use clap::{Command, FromArgMatches};
    use laneway_core::{Counters, DropReason};
    use laneway_kinds::{LaneKind, Shapes};
    use laneway_pcap::PcapKind;
    use laneway_spec::LaneSpec;
    use std::fs;
    use std::sync::Arc;

    fn session() -> Session<'static> {
        Session { json: false, worker_cpus: &[], stop: Arc::new(|| ()), confinement: None }
    }

    fn nothing() -> RunReport {
        report(Counters::default(), Counters::default())
    }

    fn arguments(words: &[&str]) -> FeaturesArguments {
        let command =
            FeaturesArguments::augment_args(Command::new("features").no_binary_name(true));
        let matches = command.try_get_matches_from(words).unwrap();
        FeaturesArguments::from_arg_matches(&matches).unwrap()
    }

    /// Calls `with` what these words and interfaces mean on lane pcap.
    fn on_pcap<T>(
        words: &[&str],
        interfaces: &[&str],
        with: impl FnOnce(Result<FeaturesRun<RowSinks>, Failure>, On<'_>) -> T,
    ) -> T {
        let arguments = arguments(words);
        let spec: LaneSpec = "pcap".parse().unwrap();
        let interfaces: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
        let on = On { spec: &spec, lane: &PcapKind::FACTS, interfaces: &interfaces, workers: 1 };
        with(RowsKind::plan(&arguments, on), on)
    }

    fn refused(words: &[&str], interfaces: &[&str]) -> String {
        on_pcap(words, interfaces, |run, _| match run {
            Err(Failure::Because(Exit::BadInput, why)) => why,
            Err(_) => panic!("refused for another reason"),
            Ok(_) => panic!("not refused"),
        })
    }

    #[test]
    fn what_the_lane_has_no_use_for_is_refused() {
        assert!(refused(&[], &[]).contains("give --on IFACE"));
        let in_kernel = refused(&["--in-kernel", "--level", "flow"], &["a.pcap"]);
        assert!(in_kernel.contains("lane pcap at level flow"), "{in_kernel}");
        let two = refused(&[], &["a.pcap", "b.pcap"]);
        assert!(two.contains("2 captures") && two.contains("laneway features"), "{two}");
    }

    #[test]
    fn what_is_of_flows_alone_is_refused_where_there_are_none() {
        for words in [["--first-packets", "8"], ["--profile", "full"]] {
            let why = refused(&words, &["a.pcap"]);
            assert!(why.starts_with(words[0]) && why.contains("add --level flow"), "{why}");
            let of_flows = [&words[..], &["--level", "flow"]].concat();
            on_pcap(&of_flows, &["a.pcap"], |run, _| assert!(run.is_ok(), "{words:?}"));
        }
    }

    #[test]
    fn flows_that_are_put_together_in_the_kernel_keep_no_packets() {
        let lane = LaneFacts { carries: Shapes::KERNEL, ..PcapKind::FACTS };
        let of = |words: &[&str], first_packets| {
            let config = Config { level: Level::Flow, first_packets, ..Config::default() };
            aggregation(&arguments(words), &lane, &config)
        };
        assert!(matches!(of(&["--in-kernel"], 0), Ok(Aggregation::Kernel)));
        assert!(matches!(of(&[], 8), Ok(Aggregation::User)));
        let Err(Failure::Because(Exit::BadInput, why)) = of(&["--in-kernel"], 8) else {
            panic!("not refused");
        };
        assert!(why.contains("leave out --in-kernel"), "{why}");
    }

    #[test]
    fn an_output_is_finished_with_its_run_and_gone_without_one() {
        let out = std::env::temp_dir().join(format!("laneway-rows-{}.csv", std::process::id()));
        let words = ["-o", out.to_str().unwrap()];
        on_pcap(&words, &["a.pcap"], |run, on| {
            let run = run.unwrap();
            assert_eq!(RowsKind::leftover(&run), None, "before it begins");
            RowsKind::begin(&run, on, &session()).unwrap();
            let partial = RowsKind::leftover(&run).unwrap();
            assert!(partial.exists());
            RowsKind::finish(&run, on, None).unwrap();
            assert!(!partial.exists() && !out.exists(), "no lane was opened");
        });
        on_pcap(&words, &["a.pcap"], |run, on| {
            let run = run.unwrap();
            RowsKind::begin(&run, on, &session()).unwrap();
            let (lane, ledger) = (nothing(), Ledger::default());
            let went = Finished { lane: &lane, report: &ledger, failure: None };
            RowsKind::finish(&run, on, Some(went)).unwrap();
            assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 1, "its header");
            let account = RowsKind::account(&run, on, &lane, &ledger);
            assert!(account.headline.unwrap().starts_with("0 rows to /"));
            let names: Vec<&String> = account.json.keys().collect();
            assert_eq!(names, ["ledger", "output", "rows", "rows_beyond_count"]);
        });
        fs::remove_file(&out).unwrap();
    }

    #[test]
    fn rows_of_a_capture_that_was_not_read_to_its_end_say_so() {
        let name = format!("laneway-rows-end-{}.arrow", std::process::id());
        let out = std::env::temp_dir().join(name);
        for (ended, complete) in [(Ended::Stopped, "false"), (Ended::Exhausted, "true")] {
            on_pcap(&["-o", out.to_str().unwrap()], &["a.pcap"], |run, on| {
                let run = run.unwrap();
                RowsKind::begin(&run, on, &session()).unwrap();
                let (lane, ledger) = (RunReport { ended, ..nothing() }, Ledger::default());
                let went = Finished { lane: &lane, report: &ledger, failure: None };
                RowsKind::finish(&run, on, Some(went)).unwrap();
            });
            let file = fs::File::open(&out).unwrap();
            let schema = arrow_ipc::reader::FileReader::try_new(file, None).unwrap().schema();
            assert_eq!(schema.metadata()["laneway.complete"], complete, "{ended:?}");
            fs::remove_file(&out).unwrap();
        }
    }

    #[test]
    fn a_worker_has_lost_what_its_ledger_says() {
        let drops = [(DropReason::SinkFull, 4)].into();
        let ledger = Ledger { seen: 1234, delivered: 1230, drops, ..Ledger::default() };
        assert_eq!(RowsKind::worker_lost(&nothing(), &ledger), 4);
    }
}
