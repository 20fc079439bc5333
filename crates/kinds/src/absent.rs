//! Lanes and apps of a shape that is not there: types without a value, so that every row of a table is whole.

use crate::{Conclude, RunReport};
use laneway_core::{
    App, Burst, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramOut, DatagramPorts, FrameApp, FrameLane, KernelApp, KernelHalf,
    KernelLane, KernelMaps, Lane, LaneError, Opened, PortId, StreamApp, StreamLane, StreamOut,
    Turn, Wake,
};
use std::time::Duration;

/// The ports of a shape that a lane does not have.
#[derive(Debug)]
pub enum NoLane {}

impl Lane for NoLane {
    fn name(&self) -> &'static str {
        match *self {}
    }
    fn ports(&self) -> usize {
        match *self {}
    }
    fn clock_domain(&self) -> ClockDomain {
        match *self {}
    }
    fn wait(&mut self, _timeout: Duration) -> Result<Wake, LaneError> {
        match *self {}
    }
    fn caps(&self, _port: PortId) -> &CapsReport {
        match *self {}
    }
    fn counters(&mut self, _port: PortId) -> Counters {
        match *self {}
    }
}

impl FrameLane for NoLane {
    fn receive(&mut self, _port: PortId) -> Result<&mut Burst, LaneError> {
        match *self {}
    }
    fn lend(&mut self, _port: PortId, _frames: usize) -> Result<&mut Burst, LaneError> {
        match *self {}
    }
    fn settle(&mut self, _port: PortId) -> Result<(), LaneError> {
        match *self {}
    }
}

impl DatagramPorts for NoLane {}

impl DatagramLane for NoLane {
    fn serve<A: DatagramApp>(
        &mut self,
        _app: &mut A,
        _clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        match *self {}
    }
    fn tick<A: DatagramApp>(&mut self, _app: &mut A, _turn: Turn) -> Result<(), LaneError> {
        match *self {}
    }
}

impl StreamLane for NoLane {
    fn serve<A: StreamApp>(
        &mut self,
        _app: &mut A,
        _clock: &impl Clock,
    ) -> Result<usize, LaneError> {
        match *self {}
    }
    fn tick<A: StreamApp>(&mut self, _app: &mut A, _turn: Turn) -> Result<(), LaneError> {
        match *self {}
    }
    fn finish<A: StreamApp>(&mut self, _app: &mut A, _turn: Turn) {
        match *self {}
    }
}

impl KernelLane for NoLane {
    fn receive(&mut self, _each: impl FnMut(&[u8])) -> Result<usize, LaneError> {
        match *self {}
    }
    fn detach(&mut self) {
        match *self {}
    }
    fn maps(&self) -> &dyn KernelMaps {
        match *self {}
    }
}

/// The app of a shape that an app does not have.
#[derive(Debug)]
pub enum NoApp {}

impl<R> Conclude<R> for NoApp {
    const IS_THERE: bool = false;

    fn conclude(self, _run: &RunReport) -> R {
        match self {}
    }
}

impl App for NoApp {
    fn counters(&self) -> &Counters {
        match *self {}
    }
}

impl FrameApp for NoApp {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        match *self {}
    }
}

impl DatagramApp for NoApp {
    fn on_datagrams<O: DatagramOut>(&mut self, _batch: &[Datagram<'_>], _turn: Turn, _out: &mut O) {
        match *self {}
    }
}

impl StreamApp for NoApp {
    fn on_open<O: StreamOut>(&mut self, _opened: Opened, _out: &mut O) {
        match *self {}
    }
    fn on_bytes<O: StreamOut>(&mut self, _conn: ConnId, _bytes: &[u8], _out: &mut O) -> usize {
        match *self {}
    }
    fn on_close(&mut self, _conn: ConnId, _why: Close) {
        match *self {}
    }
}

impl KernelApp for NoApp {
    fn half(&self) -> KernelHalf {
        match *self {}
    }
    fn on_records(&mut self, _records: &[u8], _turn: Turn) {
        match *self {}
    }
}
