//! Lanes and apps of a shape that is not there: types without a value, so that every row of a table is whole.

use crate::{Conclude, RunReport};
use laneway_core::{
    Burst, CapsReport, Clock, ClockDomain, Close, ConnId, Counters, Datagram, DatagramApp,
    DatagramLane, DatagramOut, FrameApp, FrameLane, KernelApp, KernelHalf, KernelLane, KernelMaps,
    LaneError, PortId, StreamApp, StreamLane, StreamOut, Turn, Wake,
};
use std::{net::SocketAddr, time::Duration};

/// A lane without frames has these.
#[derive(Debug)]
pub enum NoFrames {}

/// A lane without datagrams has these.
#[derive(Debug)]
pub enum NoDatagrams {}

/// A lane without streams has these.
#[derive(Debug)]
pub enum NoStreams {}

/// A lane that runs no kernel halves has these.
#[derive(Debug)]
pub enum NoKernel {}

impl FrameLane for NoFrames {
    fn name(&self) -> &'static str {
        match *self {}
    }
    fn ports(&self) -> usize {
        match *self {}
    }
    fn clock_domain(&self) -> ClockDomain {
        match *self {}
    }
    fn receive(&mut self, _port: PortId) -> Result<&mut Burst, LaneError> {
        match *self {}
    }
    fn lend(&mut self, _port: PortId, _frames: usize) -> Result<&mut Burst, LaneError> {
        match *self {}
    }
    fn settle(&mut self, _port: PortId) -> Result<(), LaneError> {
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

impl DatagramLane for NoDatagrams {
    fn name(&self) -> &'static str {
        match *self {}
    }
    fn ports(&self) -> usize {
        match *self {}
    }
    fn clock_domain(&self) -> ClockDomain {
        match *self {}
    }
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

impl StreamLane for NoStreams {
    fn name(&self) -> &'static str {
        match *self {}
    }
    fn ports(&self) -> usize {
        match *self {}
    }
    fn clock_domain(&self) -> ClockDomain {
        match *self {}
    }
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

impl KernelLane for NoKernel {
    fn name(&self) -> &'static str {
        match *self {}
    }
    fn receive(&mut self, _each: impl FnMut(&[u8])) -> Result<usize, LaneError> {
        match *self {}
    }
    fn wait(&mut self, _timeout: Duration) -> Result<Wake, LaneError> {
        match *self {}
    }
    fn detach(&mut self) {
        match *self {}
    }
    fn maps(&self) -> &dyn KernelMaps {
        match *self {}
    }
    fn caps(&self, _port: PortId) -> &CapsReport {
        match *self {}
    }
    fn counters(&mut self) -> Counters {
        match *self {}
    }
}

/// The app of a shape that an app does not have.
#[derive(Debug)]
pub enum NoApp {}

impl<R> Conclude<R> for NoApp {
    fn conclude(self, _run: &RunReport) -> R {
        match self {}
    }
}

impl FrameApp for NoApp {
    fn on_burst(&mut self, _port: PortId, _burst: &mut Burst, _turn: Turn) {
        match *self {}
    }
    fn counters(&self) -> &Counters {
        match *self {}
    }
}

impl DatagramApp for NoApp {
    fn on_datagrams<O: DatagramOut>(&mut self, _batch: &[Datagram<'_>], _turn: Turn, _out: &mut O) {
        match *self {}
    }
    fn counters(&self) -> &Counters {
        match *self {}
    }
}

impl StreamApp for NoApp {
    fn on_open(&mut self, _conn: ConnId, _peer: SocketAddr) {
        match *self {}
    }
    fn on_bytes<O: StreamOut>(&mut self, _conn: ConnId, _bytes: &[u8], _out: &mut O) -> usize {
        match *self {}
    }
    fn on_close(&mut self, _conn: ConnId, _why: Close) {
        match *self {}
    }
    fn counters(&self) -> &Counters {
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
    fn counters(&self) -> &Counters {
        match *self {}
    }
}
