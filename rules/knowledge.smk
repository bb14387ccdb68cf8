"""Attackers' prior knowledge, trained only on public data."""


rule train_knowledge:
    """Train an attacker's prior knowledge on the train split of a public dataset."""
    input:
        unpack(inputs("train_knowledge", pretraining)),
    output:
        **outputs("train_knowledge"),
    log:
        log_of("train_knowledge"),
    benchmark:
        benchmark_of("train_knowledge")
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("train_knowledge"),
    params:
        specs=lambda w: json.dumps(pretraining(w).knowledge.resolved()),
        source=lambda w: source_digest(
            STAGES["train_knowledge"].code,
            *sorted({name for part in pretraining(w).components() for name in part.modules}),
        ),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_knowledge.py"
