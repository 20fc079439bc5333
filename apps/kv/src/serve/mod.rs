//! The server: clients and what they may, transactions, messages, blocked clients, and what operators ask.
