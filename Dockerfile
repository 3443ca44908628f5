# docker build -t cfljax .
# docker run --rm --user "$(id -u)" -v "$PWD:/work" cfljax                  the quickstart, into results/quickstart of this folder
# docker run --rm --user "$(id -u)" -v "$PWD:/work" cfljax python -m cfljax.sweep SPEC.toml --out results/mine
FROM python:3.12-slim
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir .
ENV HOME=/tmp
USER 1000
WORKDIR /work
CMD ["python", "-m", "cfljax.sweep"]
