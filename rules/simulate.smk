from gleak.artifacts.granted import GRANTS


rule simulate_clients:
    """Let the victims compute and protect their updates: what is seen, granted, and kept secret."""
    input:
        dataset=f"{ARTIFACTS}/{DATASET}/dataset.h5",
        parameters=parameters,
    output:
        sent=f"{ARTIFACTS}/{SENT}/update.h5",
        private=f"{ARTIFACTS}/{SENT}/private.h5",
        granted=[f"{ARTIFACTS}/{SENT}/granted/{grant}.h5" for grant in GRANTS],
    log:
        f"{LOGS}/{SENT}/simulate_clients.log",
    benchmark:
        f"{BENCHMARKS}/{SENT}/simulate_clients.tsv"
    wildcard_constraints:
        client=NOT_CAPTURED,
    threads: 1
    resources:
        mem_mb=memory(4000, copies=3),
        runtime=60,
        gpu=int(SETTINGS.device == "cuda"),
    params:
        specs=resolved("model", "client", "defense"),
        source=source("gleak.simulation.simulate", "model", "client", "defense"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/simulate_clients.py"
