#![no_main]
include!("target.inc");
fuzz!("tokenizer_config");
