"""Knowledge: what attackers may bring, trained on public data alone."""


def pretraining(wildcards):
    """What a job trains, and on which public dataset."""
    return checked(lambda: Pretraining.from_path(dict(wildcards.items())))


rule train_knowledge:
    """Train what an attacker may bring on the train split of a public dataset."""
    input:
        unpack(inputs("train_knowledge", pretraining)),
    output:
        **outputs("train_knowledge"),
    log:
        log_of("train_knowledge"),
    benchmark:
        benchmark_of("train_knowledge")
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
