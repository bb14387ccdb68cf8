rule simulate_clients:
    """Simulate the clients: compute defended updates, grants and the truth."""
    input:
        unpack(inputs("simulate_clients")),
    output:
        **outputs("simulate_clients"),
    log:
        log_of("simulate_clients"),
    benchmark:
        benchmark_of("simulate_clients")
    wildcard_constraints:
        client=NOT_CAPTURED,
    conda:
        "../envs/gleak.yaml"
    threads: 1
    resources:
        **resources("simulate_clients"),
    params:
        **keyed_on("simulate_clients"),
        seed=SETTINGS.seed,
    script:
        "../workflow_scripts/simulate_clients.py"
