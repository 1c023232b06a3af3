"""The methods that `gristmill bench` runs, each as a script in a fresh process."""
