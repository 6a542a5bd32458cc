//! The binary; it has no commands yet.

fn main() {}
