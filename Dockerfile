# The operator's image: `make docker-build`. Nothing in it but the binary, which needs no libraries, and the certificates of public
# authorities. Where no image can be pulled, `make docker-build-local` builds the same last stage from a binary that is compiled outside.
# The SBOM is that of Cargo.lock: the binary itself does not tell what it was made of.
ARG BUILDKIT_SBOM_SCAN_CONTEXT=true

# On the builder's own platform, whatever the image is for: it is compiled across.
FROM --platform=${BUILDPLATFORM:-linux/amd64} docker.io/library/rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
# BuildKit sets it. A default here would take its place, so the default is that of ARCH.
ARG TARGETARCH
ENV ARCH=${TARGETARCH:-amd64}
WORKDIR /src
RUN case "$ARCH-$(uname -m)" in \
      amd64-x86_64 | arm64-aarch64) exit ;; \
      arm64-x86_64) cross=aarch64 ;; \
      amd64-aarch64) cross=x86_64 ;; \
    esac && \
    rustup target add "$cross-unknown-linux-gnu" && \
    apt-get -q update && \
    apt-get -qy install --no-install-recommends "gcc-$(echo $cross | tr _ -)-linux-gnu" "libc6-dev-$ARCH-cross" && \
    rm -rf /var/lib/apt/lists/*
# First the dependencies, with an operator that does nothing: a layer that lasts until Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
COPY crates/leadership/Cargo.toml crates/leadership/
COPY crates/operator-kit/Cargo.toml crates/operator-kit/
COPY crates/testkit/Cargo.toml crates/testkit/
COPY bench/Cargo.toml bench/
COPY e2e/Cargo.toml e2e/
COPY kubectl-podset/Cargo.toml kubectl-podset/
COPY hack/image/compile hack/image/
RUN mkdir -p src bench/src crates/leadership/src crates/operator-kit/src crates/testkit/src e2e/src e2e/tests/e2e kubectl-podset/src && \
    touch src/lib.rs crates/leadership/src/lib.rs crates/operator-kit/src/lib.rs crates/testkit/src/lib.rs e2e/src/lib.rs && \
    echo 'fn main() {}' | tee src/main.rs bench/src/main.rs kubectl-podset/src/main.rs >e2e/tests/e2e/main.rs && \
    hack/image/compile "$ARCH" && \
    rm -r src crates
COPY crates crates
COPY config/crd/bases config/crd/bases
COPY src src
# What was compiled of the empty one looks newer than the sources are.
RUN find crates src -name '*.rs' -exec touch {} + && hack/image/compile "$ARCH" /image

FROM scratch AS image
ARG VERSION=dev
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title=podset-operator \
      org.opencontainers.image.description="A Kubernetes operator that keeps N identical pods running, and never more than N" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=$SOURCE
COPY --from=build /image/ /
# By number: the kubelet cannot tell of a name whether it is root's (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["/podset-operator"]
