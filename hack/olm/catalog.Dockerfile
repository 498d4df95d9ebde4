# The catalog of the bundle, for OLM: `make catalog-build`. It holds files alone, which OLM extracts and serves with its own opm
# (spec.grpcPodConfig.extractContent of a CatalogSource).
FROM scratch
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY catalog /configs
