#![no_main]
include!("target.inc");
fuzz!("haystack");
