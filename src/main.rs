fn main() { for (_, c) in podset_operator::api::crds() { println!("---\n{}", serde_saphyr::to_string(&c).unwrap()); } }
