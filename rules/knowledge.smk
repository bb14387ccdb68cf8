"""Attackers' prior knowledge, trained only on public data."""


rule train_knowledge:
    """Train an attacker's prior knowledge on the train split of a public dataset."""
    input:
        dataset=f"{DATASET}/dataset.h5",
    output:
        knowledge=f"{KNOWLEDGE}/knowledge.h5",
        provenance=f"{KNOWLEDGE}/provenance.json",
    log:
        log_of("train_knowledge"),
    benchmark:
        benchmark_of("train_knowledge")
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("train_knowledge", pretraining),
    params:
        specs=lambda w: json.dumps(pretraining(w).knowledge.resolved()),
        source=lambda w: source_of("train_knowledge", pretraining(w).components()),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_knowledge.py"
