"""Knowledge: what attackers may bring, trained on public data alone."""

LEARNED = "{dataset}/{knowledge}"


def pretraining(wildcards):
    """What a job trains, and on which public dataset."""
    return checked(lambda: Pretraining.from_path(dict(wildcards.items())))


rule train_knowledge:
    """Train what an attacker may bring on the train split of a public dataset."""
    input:
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
    output:
        knowledge=f"{KNOWLEDGE}/{LEARNED}/knowledge.h5",
        provenance=f"{KNOWLEDGE}/{LEARNED}/provenance.json",
    log:
        f"{LOGS}/knowledge/{LEARNED}/train_knowledge.log",
    benchmark:
        f"{BENCHMARKS}/knowledge/{LEARNED}/train_knowledge.tsv"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=720,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        specs=lambda w: json.dumps(pretraining(w).knowledge.resolved()),
        source=lambda w: source_digest(
            "gleak.knowledge.train_knowledge",
            *sorted({name for part in pretraining(w).components() for name in part.modules}),
        ),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/train_knowledge.py"
