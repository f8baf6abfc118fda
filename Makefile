# Every target sets up what it needs; nothing has to be done first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export SEA_NN_DATA ?= ../shared/data
export MPLBACKEND = Agg

.PHONY: demo test bench check docs dist clean

demo: $(VENV)/.demo
	$(BIN)/sea explain --demo -o out/demo
	@echo "Next: $(BIN)/sea app opens a page, $(BIN)/sea run FOLDER -o out/run explains a whole folder."

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal

bench: $(VENV)/.test
	PYTHONPATH=. $(BIN)/sea bench speed

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/house.py

docs: $(VENV)/.docs
	@echo "Running the gallery (some minutes) ..."
	@SEA_NN_GALLERY=1 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html; with search: $(BIN)/python -m http.server -d site"

# The wheel and the sdist in an environment of its own for every Python that is there, pyenv's too.
# What they need is installed once; the sdist then takes the wheel's place.
dist: $(VENV)/bin/pip
	@$(BIN)/pip install -q build 2>&1 | grep -v '^WARNING: Location' || true
	rm -rf dist && $(BIN)/python -m build --outdir dist . > /dev/null
	@for minor in 11 12 13; do \
	  python=$$(ls /usr/bin/python3.$$minor /usr/local/bin/python3.$$minor $(HOME)/.pyenv/versions/3.$$minor.*/bin/python 2> /dev/null | head -1); \
	  [ -n "$$python" ] || { echo "Python 3.$$minor is not here"; continue; }; \
	  rm -rf dist/try && $$python -m venv dist/try || exit 1; \
	  for file in dist/*.whl dist/*.tar.gz; do \
	    echo "Python 3.$$minor: installing $$file ..."; \
	    dist/try/bin/pip uninstall -q -y sea-nn 2> /dev/null; \
	    dist/try/bin/pip install -q --no-compile -c constraints.txt $$file 2>&1 | grep -v '^WARNING: Location'; \
	    (cd dist/try && bin/sea --version && bin/sea explain --demo --model fashion-cnn --budget 34 -o out > /dev/null) || exit 1; \
	    echo "Python 3.$$minor: $$file works"; \
	  done; \
	done; rm -rf dist/try

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# pip is quiet except for errors: a newcomer wants to see the demo, not two hundred lines of wheels.
# The demo brings what the README shows afterwards: the page (app) and whole data sets (data).
# Few of the modules are imported, so they are compiled when imported, not when installed.
$(VENV)/.demo: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "1 of 2: installing PyTorch into $(VENV) (some minutes, once) ..."
	@$(BIN)/pip install -q --no-compile -c constraints.txt torch 2>&1 | grep -v '^WARNING: Location' || true
	@echo "2 of 2: installing SEA-NN and the app ..."
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[app,data]" 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python -c "import sea_nn, gradio, pyarrow" && touch $@

$(VENV)/.test: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing SEA-NN and what its tests need into $(VENV) ..."
	@$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[test]" 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python -c "import sea_nn, pytest, xdist, hypothesis" && touch $@

$(VENV)/.dev: $(VENV)/bin/pip pyproject.toml constraints.txt
	@$(BIN)/pip install -q -c constraints.txt -e ".[dev]" 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python -c "import sea_nn, mypy, pytest" && touch $@

$(VENV)/.docs: $(VENV)/bin/pip pyproject.toml constraints.txt
	@$(BIN)/pip install -q -c constraints.txt -e ".[docs,vision,data]" 2>&1 | grep -v '^WARNING: Location' || true
	@$(BIN)/python -c "import sea_nn, mkdocs, material, mkdocstrings" && touch $@

clean:
	rm -rf $(VENV) out site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
