# The operator's image: `make docker-build`. Nothing in it but the binary, a C library and the certificates of public authorities.
ARG BUILD_IMAGE=docker.io/library/rust:1.95-bookworm
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release --package podset-operator --bin podset-operator

FROM ${BASE_IMAGE}
COPY --from=build /src/target/release/podset-operator /podset-operator
# By number: the kubelet cannot tell of a name whether it is root's (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["/podset-operator"]
