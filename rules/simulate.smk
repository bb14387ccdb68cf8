rule simulate_clients:
    """Simulate the clients: compute defended updates, grants and the truth."""
    input:
        dataset=f"{DATASET}/dataset.h5",
        parameters=broadcast,
    output:
        sent=f"{SENT}/update.h5",
        private=f"{SENT}/private.h5",
        granted=[f"{SENT}/granted/{grant}.h5" for grant in GRANTS],
    log:
        log_of("simulate_clients"),
    benchmark:
        benchmark_of("simulate_clients")
    wildcard_constraints:
        client=NOT_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    resources:
        **resources("simulate_clients"),
    params:
        **keyed_on("simulate_clients"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/simulate_clients.py"
